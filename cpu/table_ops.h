// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/table_ops.h: the operations on a CPU; each returns when it is complete.
#pragma once

#include <functional>

#include "core/args.h"
#include "core/tiers/tier_args.h"
#include "cpu/loops/thread_pool.h"

namespace dynemb::cpu {

void lookup(LookupArgs const& args, ThreadPool const& pool);
void find(FindArgs const& args, ThreadPool const& pool);
void find_packed(FindPackedArgs const& args, ThreadPool const& pool);
void update(UpdateArgs const& args, ThreadPool const& pool);
void update_any(UpdateArgs const& args, ThreadPool const& pool);
void reduce(ReduceArgs const& args, ThreadPool const& pool);
void gather(RowsArgs const& args, ThreadPool const& pool);
void scatter(RowsArgs const& args, ThreadPool const& pool);
void erase(EraseArgs const& args, ThreadPool const& pool);
void count_rule(RuleArgs const& args, ThreadPool const& pool);
void erase_rule(RuleArgs const& args, ThreadPool const& pool);
void decay(DecayArgs const& args, ThreadPool const& pool);
void export_batch(ExportArgs const& args, ThreadPool const& pool);
void route(RouteArgs const& args, ThreadPool const& pool);
void offsets(OffsetsArgs const& args, ThreadPool const& pool);
void add_to_counters(AddToCountersArgs const& args, ThreadPool const& pool);
void distinct(DistinctArgs const& args, ThreadPool const& pool);
void pair_rows(PairRowsArgs const& args, ThreadPool const& pool);
void pair_gradients(PairGradientsArgs const& args, ThreadPool const& pool);
void promote(PromoteArgs const& args, ThreadPool const& pool);
void fetch(FetchArgs const& args, ThreadPool const& pool);
void write_back(WriteBackArgs const& args, ThreadPool const& pool);
void swap_rows(WriteBackArgs const& args, ThreadPool const& pool);
void settle(SettleArgs const& args, ThreadPool const& pool);
void begin_swap(WriteBackArgs const& args, ThreadPool const& pool);
// Goes on when it returns; calls ended() at last.
void run_swap(WriteBackArgs const& args, ThreadPool const& pool, std::function<void()> ended);
void end_swap(WriteBackArgs const& args, ThreadPool const& pool);
void tier_rows(TierRowsArgs const& args, ThreadPool const& pool);
void depart(DepartArgs const& args, ThreadPool const& pool);
void tier_gather(TierGatherArgs const& args, ThreadPool const& pool);

}  // namespace dynemb::cpu
