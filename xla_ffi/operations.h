// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/operations.h: what every backend offers, named once.
#pragma once

#include <cstddef>

#include "core/args.h"
#include "core/tiers/tier_args.h"

namespace dynemb::backend {

// Holds memory for the time of one call.
struct Scratch {
  void* data;
  size_t bytes;
};

}  // namespace dynemb::backend

// Expands to one(operation, its arguments) for every operation.
#define DYNEMB_FOR_EACH_OPERATION(one)                                                          \
  one(lookup, LookupArgs) one(find, FindArgs) one(find_packed, FindPackedArgs)                  \
      one(update, UpdateArgs) one(update_any, UpdateArgs) one(reduce, ReduceArgs)               \
          one(gather, RowsArgs) one(scatter, RowsArgs) one(erase, EraseArgs)                    \
              one(count_rule, RuleArgs) one(erase_rule, RuleArgs) one(decay, DecayArgs)         \
                  one(export_batch, ExportArgs) one(route, RouteArgs) one(offsets, OffsetsArgs) \
                      one(add_to_counters, AddToCountersArgs) one(distinct, DistinctArgs)       \
                          one(pair_rows, PairRowsArgs) one(pair_gradients, PairGradientsArgs)

// The same of every operation on a tiered table.
#define DYNEMB_FOR_EACH_TIER_OPERATION(one)                                                       \
  one(promote, PromoteArgs) one(fetch, FetchArgs) one(write_back, WriteBackArgs)                  \
      one(swap_rows, WriteBackArgs) one(settle, SettleArgs) one(tier_rows, TierRowsArgs)          \
          one(tier_gather, TierGatherArgs) one(depart, DepartArgs) one(begin_swap, WriteBackArgs) \
              one(end_swap, WriteBackArgs)
