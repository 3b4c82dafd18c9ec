// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/lookup/find.cc: serving lookup; changes nothing in the table.
#include "core/find.h"

#include "cpu/lookup/probe_rows.h"
#include "cpu/loops/huge_pages.h"
#include "cpu/table_ops.h"

namespace dynemb::cpu {

void find(FindArgs const& args, ThreadPool const& all) {
  auto const& pool = threads_for(args.features, args.num_features, all);
  auto const streams = streams_rows(args);
  for (int32_t t = 0; t < args.num_tables; ++t) prefer_huge_pages(args.tables[t]);
  for_each(pool, cut_bags(args.features, args.num_features, kIdsPerChunk),
           [&](int64_t, FeatureChunk const& chunk) {
             auto const& feature = args.features[chunk.feature];
             auto const& table = args.tables[feature.table];
             RowTask const task{table, feature, table.eval_initializer, streams};
             auto const settle = [](int64_t, int32_t slot, Entry*) { return slot_to_read(slot); };
             probe_rows(task, chunk, nullptr, settle);
           });
}

}  // namespace dynemb::cpu
