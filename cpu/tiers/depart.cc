// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tiers/depart.cc: departed rows to the records of their ring (core/tiers/tier_args.h).
#include <algorithm>
#include <cstring>

#include "core/slot.h"
#include "core/tiers/tier_args.h"
#include "cpu/table_ops.h"
#include "cpu/tiers/move_row.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kRowsPerChunk = 256;

// The table whose row 0 is a record.
TableRef table_of_record(TableRef table, uint8_t* record) {
  for (int s = 0; s < table.num_states; ++s) {
    table.states[s] = reinterpret_cast<float*>(record + state_offset(table, s));
  }
  table.values = record;
  return table;
}

void copy_departed(DepartArgs const& args, Departure const& note, uint8_t* record) {
  auto const& tier = args.tier;
  if (!is_live(note.slot, static_cast<uint32_t>(args.table.local_buckets * kBucketCapacity))) {
    memset(record, 0, size_t(tier.record_bytes));
    return;
  }
  auto const frame = frame_of(tier, note.slot, note.location);
  if (frame >= 0) {
    auto const row = frame_row(tier, note.slot / kBucketCapacity, frame);
    record_from_row(args.table, row, record);
  } else if (is_fresh_location(note.location)) {
    initialize_slot(ScalarGroup{}, table_of_record(args.table, record), note.key, 0);
  } else {
    memcpy(record, record_at(tier, note.slot), size_t(tier.record_bytes));
  }
}

}  // namespace

void depart(DepartArgs const& args, ThreadPool const& pool) {
  auto* const ring = args.departures.ring;
  auto const count = std::min(ring[kRingCount], args.departures.room);
  auto const copied = std::min(ring[kRingCopied], count);
  for_each_range(pool, count - copied, kRowsPerChunk, [&](int64_t begin, int64_t end) {
    for (auto i = copied + begin; i < copied + end; ++i) {
      auto const& note = *departure_at(ring, static_cast<uint32_t>(i));
      copy_departed(args, note, args.records + i * args.tier.record_bytes);
    }
  });
  count_in_tier(args.tier, kTierDeparted, count - copied);
  count_in_tier(args.tier, kTierRingFull, ring[kRingRefused]);
  ring[kRingCopied] = count;
  ring[kRingRefused] = 0;
}

}  // namespace dynemb::cpu
