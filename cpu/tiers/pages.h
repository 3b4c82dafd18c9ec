// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tiers/pages.h: arrays of tiered tables move to huge pages, as those of other tables do
// (cpu/loops/huge_pages.h).
#pragma once

#include "core/tiers/record.h"
#include "core/tiers/tier_ref.h"
#include "cpu/loops/huge_pages.h"

namespace dynemb::cpu {

// But for the index and the places, which the call on the index part has.
inline void prefer_pages(TableRef const& table, TierRef const& tier) {
  auto const frames = first_spill_row(tier, table), rows = frames + tier.spill_rows;
  prefer_huge_pages(tier.owners, size_t{4} * size_t(frames));
  prefer_huge_pages(table.values, size_t(rows * row_bytes_of(table)));
  for (int s = 0; s < table.num_states; ++s) {
    prefer_huge_pages(table.states[s], size_t{4} * size_t(rows * table.state_width[s]));
  }
  prefer_huge_pages(tier.homes, size_t(table.local_buckets * kBucketCapacity * tier.record_bytes));
}

// Requests huge pages for the arrays of all tables of a call.
template <class Args>
void prefer_pages(Args const& args) {
  for (int32_t t = 0; t < args.num_tables; ++t) {
    prefer_pages(args.tables[t].table, args.tables[t].tier);
  }
}

}  // namespace dynemb::cpu
