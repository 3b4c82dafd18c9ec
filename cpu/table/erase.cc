// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/table/erase.cc: keys are erased from a table.
#include "core/erase.h"

#include "cpu/table_ops.h"

namespace dynemb::cpu {

constexpr int64_t kIdsPerChunk = 1024;

void erase(EraseArgs const& args, ThreadPool const& pool) {
  for_each_range(pool, args.num_ids, kIdsPerChunk, [&](int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) {
      args.slots[i] = find_to_erase(args.table, load_key(args.ids, args.id_type, i));
    }
  });
  for_each_range(pool, args.num_ids, kIdsPerChunk, [&](int64_t begin, int64_t end) {
    uint64_t erased = 0;
    for (auto i = begin; i < end; ++i)
      erased += erase_slot(args.table, args.removals, args.slots[i]) ? 1 : 0;
    count_left(args.table, kErased, erased);
  });
}

}  // namespace dynemb::cpu
