// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tiers/tables.h: the tables of one call, cut among threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/loops/thread_pool.h"

namespace dynemb::cpu {

// Calls each(table, pool) for the tables of a call. Where these are many, and none has most of the
// ids, a thread takes whole tables, so it waits for no other; else threads share each table.
template <class Args, class Each>
void for_each_table(Args const& args, ThreadPool const& pool, Each const& each) {
  int64_t all = 0, most = 0;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    all += args.tables[t].num_ids;
    most = std::max(most, args.tables[t].num_ids);
  }
  if (most * pool.num_threads * 4 > all) {
    for (int32_t t = 0; t < args.num_tables; ++t) each(args.tables[t], pool);
    return;
  }
  ThreadPool const alone;
  for_each_chunk(pool, args.num_tables, [&](int64_t t) { each(args.tables[t], alone); });
}

}  // namespace dynemb::cpu
