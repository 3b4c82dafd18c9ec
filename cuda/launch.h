// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/launch.h: the operations on a GPU: each puts its kernels on the stream and returns.
//
// Nothing here waits, allocates or reads device memory, and every launch follows from static
// shapes, so a stream may be captured into a graph. An operation needs `scratch` of as many bytes
// as its `..._scratch_bytes` says, aligned to kScratchAlignment, until its kernels have run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "core/args.h"
#include "core/tiers/tier_args.h"

namespace dynemb::cuda {

constexpr size_t kScratchAlignment = 128;  // what XLA gives every buffer on a GPU

size_t lookup_scratch_bytes(LookupArgs const& args);
cudaError_t lookup(LookupArgs const& args, void* scratch, cudaStream_t stream);

size_t find_scratch_bytes(FindArgs const& args);
cudaError_t find(FindArgs const& args, void* scratch, cudaStream_t stream);

size_t find_packed_scratch_bytes(FindPackedArgs const& args);
cudaError_t find_packed(FindPackedArgs const& args, void* scratch, cudaStream_t stream);

size_t update_scratch_bytes(UpdateArgs const& args);
cudaError_t update(UpdateArgs const& args, void* scratch, cudaStream_t stream);

size_t update_any_scratch_bytes(UpdateArgs const& args);
cudaError_t update_any(UpdateArgs const& args, void* scratch, cudaStream_t stream);

size_t reduce_scratch_bytes(ReduceArgs const& args);
cudaError_t reduce(ReduceArgs const& args, void* scratch, cudaStream_t stream);

size_t gather_scratch_bytes(RowsArgs const& args);
cudaError_t gather(RowsArgs const& args, void* scratch, cudaStream_t stream);

size_t scatter_scratch_bytes(RowsArgs const& args);
cudaError_t scatter(RowsArgs const& args, void* scratch, cudaStream_t stream);

size_t erase_scratch_bytes(EraseArgs const& args);
cudaError_t erase(EraseArgs const& args, void* scratch, cudaStream_t stream);

size_t count_rule_scratch_bytes(RuleArgs const& args);
cudaError_t count_rule(RuleArgs const& args, void* scratch, cudaStream_t stream);

size_t erase_rule_scratch_bytes(RuleArgs const& args);
cudaError_t erase_rule(RuleArgs const& args, void* scratch, cudaStream_t stream);

size_t decay_scratch_bytes(DecayArgs const& args);
cudaError_t decay(DecayArgs const& args, void* scratch, cudaStream_t stream);

size_t export_batch_scratch_bytes(ExportArgs const& args);
cudaError_t export_batch(ExportArgs const& args, void* scratch, cudaStream_t stream);

size_t route_scratch_bytes(RouteArgs const& args);
cudaError_t route(RouteArgs const& args, void* scratch, cudaStream_t stream);

size_t offsets_scratch_bytes(OffsetsArgs const& args);
cudaError_t offsets(OffsetsArgs const& args, void* scratch, cudaStream_t stream);

size_t add_to_counters_scratch_bytes(AddToCountersArgs const& args);
cudaError_t add_to_counters(AddToCountersArgs const& args, void* scratch, cudaStream_t stream);

size_t distinct_scratch_bytes(DistinctArgs const& args);
cudaError_t distinct(DistinctArgs const& args, void* scratch, cudaStream_t stream);

size_t pair_rows_scratch_bytes(PairRowsArgs const& args);
cudaError_t pair_rows(PairRowsArgs const& args, void* scratch, cudaStream_t stream);

size_t pair_gradients_scratch_bytes(PairGradientsArgs const& args);
cudaError_t pair_gradients(PairGradientsArgs const& args, void* scratch, cudaStream_t stream);

size_t promote_scratch_bytes(PromoteArgs const& args);
cudaError_t promote(PromoteArgs const& args, void* scratch, cudaStream_t stream);

size_t fetch_scratch_bytes(FetchArgs const& args);
cudaError_t fetch(FetchArgs const& args, void* scratch, cudaStream_t stream);

size_t write_back_scratch_bytes(WriteBackArgs const& args);
cudaError_t write_back(WriteBackArgs const& args, void* scratch, cudaStream_t stream);

size_t swap_rows_scratch_bytes(WriteBackArgs const& args);
cudaError_t swap_rows(WriteBackArgs const& args, void* scratch, cudaStream_t stream);

size_t settle_scratch_bytes(SettleArgs const& args);
cudaError_t settle(SettleArgs const& args, void* scratch, cudaStream_t stream);

// Copies records on a stream of its own, from where the stream given to begin_swap was; the stream
// given to end_swap waits for them. Neither can be captured.
size_t begin_swap_scratch_bytes(WriteBackArgs const& args);
cudaError_t begin_swap(WriteBackArgs const& args, void* scratch, cudaStream_t stream);
size_t end_swap_scratch_bytes(WriteBackArgs const& args);
cudaError_t end_swap(WriteBackArgs const& args, void* scratch, cudaStream_t stream);

size_t tier_rows_scratch_bytes(TierRowsArgs const& args);
cudaError_t tier_rows(TierRowsArgs const& args, void* scratch, cudaStream_t stream);

size_t tier_gather_scratch_bytes(TierGatherArgs const& args);
cudaError_t tier_gather(TierGatherArgs const& args, void* scratch, cudaStream_t stream);

size_t depart_scratch_bytes(DepartArgs const& args);
cudaError_t depart(DepartArgs const& args, void* scratch, cudaStream_t stream);

}  // namespace dynemb::cuda
