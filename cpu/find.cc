// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/find.cc: serving lookup; changes nothing in the table.
#include "core/find.h"

#include "cpu/group_probe.h"
#include "cpu/output_rows.h"
#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kIdsPerChunk = 1024;

void find_ids(TableRef const& table, FeatureRef const& feature, FeatureChunk const& chunk) {
  for_each_probe(table, feature, chunk.begin, chunk.end, [&](int64_t position, int32_t slot) {
    feature.slots[position] = slot_to_read(slot);
    feature.found[position] = slot >= 0 ? 1 : 0;
  });
}

}  // namespace

void find(FindArgs const& args, ThreadPool const& pool) {
  for_each(pool, cut_ids(args.features, args.num_features, kIdsPerChunk),
           [&](int64_t, FeatureChunk const& chunk) {
             auto const& feature = args.features[chunk.feature];
             find_ids(args.tables[feature.table], feature, chunk);
           });
  for_each(pool, cut_bags(args.features, args.num_features, kIdsPerChunk),
           [&](int64_t, FeatureChunk const& chunk) {
             auto const& feature = args.features[chunk.feature];
             auto const& table = args.tables[feature.table];
             write_rows(table, feature, table.eval_initializer, chunk);
           });
}

}  // namespace dynemb::cpu
