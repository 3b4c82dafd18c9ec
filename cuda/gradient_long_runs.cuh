// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradient_long_runs.cuh: adds up the pieces of runs that have more than one.
//
// A task is up to 64 pieces of a run, added by a block in an order that depends on their number
// only. A run of more pieces has several tasks: each leaves its sum in the scratch row of its first
// piece, and the block that completes the last of them adds up these rows in the same way. So even
// a batch of one single id is spread over many blocks.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/gradient_sums.cuh"

namespace dynemb::cuda {

template <class Sink>
struct LongRunsCall {
  CallView view;
  LongRuns long_runs;
  Sink sink;
};

struct RunAdder {
  LongRuns const& long_runs;
  LongRun const& run;
  int32_t dim;
  float4* shared;  // [kThreads]

  __device__ __forceinline__ float* row(int64_t piece) const {
    return long_runs.partial + partial_row(run.start, piece, run.num_pieces) * long_runs.stride;
  }

  // Adds `count` rows, those of pieces first, first + step, ...; the sum replaces the first.
  __device__ void add(int64_t first, int64_t step, int64_t count) const {
    auto const tile = RowTile(lanes_of_row(dim));
    auto const tiles = kWarpsPerBlock * tile.per_warp;
    auto const mine = static_cast<int32_t>(threadIdx.x) / tile.lanes;
    for (int32_t base = 0; base < dim; base += tile.step()) {
      auto const column = base + tile.first_column();
      auto const active = column < dim;
      auto const sum = active ? sum_of_tile(first, step, count, mine, tiles, column)
                              : float4{0.0f, 0.0f, 0.0f, 0.0f};
      __syncthreads();  // what shared memory held has been read
      shared[threadIdx.x] = sum;
      for (int half = tiles / 2; half > 0; half /= 2) {
        __syncthreads();
        if (mine < half)
          add_scaled(shared[threadIdx.x], 1.0f, shared[threadIdx.x + half * tile.lanes]);
      }
      if (mine == 0 && active) {
        *reinterpret_cast<float4*>(row(first) + column) = shared[threadIdx.x];
      }
    }
  }

  // Past the first-level cache: other blocks wrote some of these rows during this kernel.
  __device__ __forceinline__ float4 load(int64_t piece, int32_t column) const {
    return __ldcg(reinterpret_cast<float4 const*>(row(piece) + column));
  }

  __device__ __forceinline__ float4 sum_of_tile(int64_t first, int64_t step, int64_t count,
                                                int32_t mine, int32_t tiles, int32_t column) const {
    constexpr int kInFlight = 4;
    float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
    for (int64_t j = mine; j < count; j += tiles * kInFlight) {
      float4 rows[kInFlight];
#pragma unroll
      for (int r = 0; r < kInFlight; ++r) {
        auto const index = j + r * tiles;
        rows[r] =
            index < count ? load(first + index * step, column) : float4{0.0f, 0.0f, 0.0f, 0.0f};
      }
#pragma unroll
      for (int r = 0; r < kInFlight; ++r) add_scaled(sum, 1.0f, rows[r]);
    }
    return sum;
  }
};

// Reached by all threads of a block that has written the sum of a group. True for the last group
// of the run; then what the others wrote can be read.
__device__ __forceinline__ bool arrives_last(LongRun* run, uint32_t groups, bool* shared) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *shared = atomicAdd(&run->arrived, 1u) == groups - 1;
  __syncthreads();
  __threadfence();
  return *shared;
}

template <class Sink>
__global__ void __launch_bounds__(kThreads, 4) long_runs_kernel(LongRunsCall<Sink> const call) {
  __shared__ float4 sums[kThreads];
  __shared__ bool is_last;
  auto const& long_runs = call.long_runs;
  auto const count = *long_runs.num_tasks;
  for (auto i = blockIdx.x; i < count; i += gridDim.x) {
    auto const task = long_runs.tasks[i];
    auto& run = long_runs.runs[task.run];
    auto const& table = call.view.tables[run.table];
    auto const adder = RunAdder{long_runs, run, table.dim, sums};
    auto const groups = static_cast<uint32_t>(ceil_div(run.num_pieces, kGroupPieces));
    auto const first = int64_t{task.group} * kGroupPieces;
    adder.add(first, 1, min(int64_t{kGroupPieces}, run.num_pieces - first));
    if (groups > 1) {
      if (!arrives_last(&run, groups, &is_last)) continue;
      adder.add(0, kGroupPieces, groups);
    }
    __syncthreads();  // the whole sum has been written
    if (threadIdx.x < 32) {
      auto const row = SummedRow{table, run.table, run.slot, run.first_item};
      call.sink.finish(TileGroup<32>(), row, adder.row(0));
    }
  }
}

// ---- host ---------------------------------------------------------------------------------------

template <class Args>
LongRuns take_long_runs(Args const& args, Scratch& scratch) {
  auto const items = total_ids(args);
  int32_t stride = 4;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    stride = std::max(stride, (args.tables[t].dim + 3) / 4 * 4);
  }
  auto const runs = items / kPiece + 1;
  auto const tasks = runs + items / (kPiece * kGroupPieces) + 1;
  auto const rows = items <= kPiece ? 0 : 2 * ceil_div(items, kPiece);
  return {scratch.take<LongRun>(runs),        scratch.take<GroupTask>(tasks),
          scratch.take<uint32_t>(1),          scratch.take<uint32_t>(1),
          scratch.take<float>(rows * stride), stride};
}

template <class Args>
bool has_vector_gradients(Args const& args) {
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto const& feature = args.features[f];
    auto const dim = args.tables[feature.table].dim;
    if (!is_float_vectors(feature.row_type, feature.rows, dim)) return false;
  }
  return true;
}

template <bool kFast, class SortKey, class Sink>
cudaError_t launch_sums(PiecesCall<SortKey, Sink> const& call, cudaStream_t stream) {
  auto const items = call.sorted.num_items;
  auto const blocks = static_cast<unsigned>(ceil_div(items, kBlockPositions));
  pieces_kernel<kFast><<<blocks, kThreads, 0, stream>>>(call);
  DYNEMB_CUDA_TRY(cudaGetLastError());
  if (items <= kPiece) return cudaSuccess;  // no run is longer than a piece
  auto const tasks = static_cast<unsigned>(persistent_blocks(items / kPiece, 4));
  auto const general = call.sink.general();
  long_runs_kernel<<<tasks, kThreads, 0, stream>>>(
      LongRunsCall<std::decay_t<decltype(general)>>{call.view, call.long_runs, general});
  return cudaGetLastError();
}

}  // namespace dynemb::cuda
