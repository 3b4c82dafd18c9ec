// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/suffix_sums.cuh: gradients of suffixes, summed in registers. The blocks of a
// share of the prefixes divide the suffixes; each warp owns some columns of them, and adds the rows
// of these suffixes alone. A block copies prefixes and gradients of rows into shared memory, a
// stage ahead of the products. At the end the sums of all shares are added in order.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cuda/grid/host.h"
#include "cuda/tensor_train/owned_sums.cuh"
#include "cuda/tensor_train/pair_columns.cuh"

namespace dynemb::cuda {

template <class Number>
struct SuffixSumsCall {
  StageSources<Number> from;
  RowRange32 const* ranges;  // [parts, num_prefixes], or null: one part
  int32_t parts, shares;
  float* sums;  // [shares, num_suffixes, k, n]
};

struct SumSharesCall {
  int64_t size;  // of the sums of a share
  int32_t shares;
  float const* sums;
  float* d_suffix;
};

struct PartRangesCall {
  PairShape shape;
  int32_t suffixes_of_part, parts;
  RowRange32* ranges;  // [parts, num_prefixes]
};

template <class Factors>
__global__ void __launch_bounds__(kSumThreads, 1)
    suffix_sums_kernel(__grid_constant__ SuffixSumsCall<typename Factors::Number> const call) {
#ifdef __CUDACC__
  extern __shared__ uint4 memory[];
#else
  auto* const memory = memory_of_block();
#endif
  __shared__ StagePlan plans[3];
  __shared__ int64_t row_offsets[kTileRows];
  using Sums = OwnedSums<Factors>;
  __shared__ typename Sums::Rows::Memory of_slots;
  using Number = typename Factors::Number;
  auto const& shape = call.from.shape;
  auto const& layout = call.from.layout;
  auto const part = static_cast<int32_t>(blockIdx.x) % call.parts;
  auto const share = static_cast<int32_t>(blockIdx.x) / call.parts;
  auto const plans_here = threadIdx.x / 32 == 0;
  auto const first = plans_here ? first_prefix_by_warp(shape, call.parts, share, call.shares) : 0;
  auto const last =
      plans_here ? first_prefix_by_warp(shape, call.parts, share + 1, call.shares) : 0;
  auto const* const ranges =
      call.ranges == nullptr ? nullptr : call.ranges + part * shape.num_prefixes;
  StagePlanner planner(shape, ranges, layout.slots, layout.rows, first, last);
  StageCopies<Number> const copies(call.from, row_offsets);
  typename Sums::Rows const rows(shape, of_slots, part);
  Sums sums(layout, rows);
  auto const stage_of = [&](int32_t s) {
    return reinterpret_cast<char*>(memory) + s % 2 * layout.bytes;
  };
  auto const slot = copies.slot_of_suffixes();
  auto const thread = static_cast<int32_t>(threadIdx.x);
  if (thread < kTileRows * Factors::kColumns) {
    for (int32_t s = 0; s < 2; ++s) {
      auto* const d_rows = reinterpret_cast<Number*>(stage_of(s) + layout.d_rows);
      d_rows[layout.rows * (kTileRows * Factors::kColumns) + thread] = Number{};
    }
  }
  if (plans_here) planner.plan(plans[0]);
  __syncthreads();
  copies.begin(plans[0], stage_of(0));
  end_copies();
  if (plans_here) planner.plan(plans[1]);
  for (int32_t s = 0; plans[s % 3].count > 0; ++s) {
    __syncthreads();  // the plan is there, and the stage before this one is read
    copies.begin(plans[(s + 1) % 3], stage_of(s + 1));
    end_copies();
    wait_for_copies_before();
    auto const& plan = plans[s % 3];
    if constexpr (Factors::kRoundsPrefix) copies.round_prefix(plan, stage_of(s));
    if (slot >= 0) rows.note(plan, slot, reinterpret_cast<int32_t const*>(stage_of(s)));
    __syncthreads();  // the copies of all threads are there
    if (plans_here) planner.plan(plans[(s + 2) % 3]);
    sums.add(stage_of(s), plan.count);
  }
  sums.write(call.sums + share * shape.num_suffixes * shape.k * shape.n);
}

// Finds, of each prefix, the rows from the first to the last with a suffix of a part. A warp has a
// prefix, a lane a part.
__global__ void __launch_bounds__(kThreads)
    part_ranges_kernel(__grid_constant__ PartRangesCall const call) {
  auto const& shape = call.shape;
  auto const warps = int64_t{gridDim.x} * kWarpsPerBlock;
  for (auto prefix = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
       prefix < shape.num_prefixes; prefix += warps) {
    auto const rows = rows_of_prefix(shape, prefix);
    RowRange32 own{0, 0};
    for (auto base = rows.begin; base < rows.end; base += 32) {
      auto const row = base + lane_id();
      auto const exists = row < rows.end && has_suffix(shape, row);
      auto const part = exists ? shape.of_suffix[row] / call.suffixes_of_part : -1;
      for (int32_t p = 0; p < call.parts; ++p) {
        auto const lanes = __ballot_sync(kFullWarp, part == p);
        if (lanes == 0 || lane_id() != p) continue;
        auto const at = static_cast<int32_t>(base);
        if (own.begin == own.end) own.begin = at + __ffs(static_cast<int>(lanes)) - 1;
        own.end = at + 32 - __clz(static_cast<int>(lanes));
      }
    }
    if (lane_id() < call.parts) call.ranges[lane_id() * shape.num_prefixes + prefix] = own;
  }
}

__global__ void __launch_bounds__(kThreads)
    sum_shares_kernel(__grid_constant__ SumSharesCall const call) {
  auto const step = int64_t{gridDim.x} * kThreads;
  for (auto i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < call.size; i += step) {
    float sum = 0;
#pragma unroll 12
    for (int32_t share = 0; share < call.shares; ++share) sum += call.sums[share * call.size + i];
    call.d_suffix[i] = sum;
  }
}

// How a call is divided, from its sizes alone.
struct SumParts {
  static constexpr int64_t kBlocks = 132;    // the same on every GPU: they decide on bits
  static constexpr int64_t kLeastRows = 64;  // of a share
  static constexpr int32_t kMostParts = 32;

  int32_t suffixes;  // of a part
  int32_t parts;     // 0: a warp's registers do not fit these sizes
  int32_t shares;

  explicit SumParts(PairShape const& shape) : suffixes(0), parts(0), shares(0) {
    if (!fits(shape)) return;
    suffixes = kSumWarps * 8 * (shape.k == 64 ? 4 : 8) / shape.n;
    auto const found = ceil_div(shape.num_suffixes, suffixes);
    if (found > kMostParts) return;
    parts = static_cast<int32_t>(std::max<int64_t>(1, found));
    auto const useful = ceil_div(shape.num_rows, kLeastRows);
    shares = static_cast<int32_t>(
        std::max<int64_t>(1, std::min(useful, std::max<int64_t>(1, kBlocks / parts))));
  }

  int64_t sums(PairShape const& shape) const {
    return shares * shape.num_suffixes * shape.k * shape.n;
  }
  int64_t ranges(PairShape const& shape) const {
    return parts > 1 ? parts * shape.num_prefixes : 0;
  }

 private:
  static bool fits(PairShape const& shape) {
    constexpr int64_t kLeastMemory = 87 * 1024;  // of a block, on all GPUs from Ampere on
    auto const ranks = shape.k == 16 || shape.k == 32 || shape.k == 64;
    return shape.m == kTileRows && ranks && (shape.n == 4 || shape.n == 8) &&
           StageLayout::of(shape, kLeastMemory).slots > 0;
  }
};

template <class Factors>
cudaError_t launch_suffix_sums(SuffixSumsCall<typename Factors::Number> const& call,
                               cudaStream_t stream) {
  auto const bytes = 2 * static_cast<size_t>(call.from.layout.bytes);
  auto* const kernel = suffix_sums_kernel<Factors>;
  DYNEMB_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(bytes)));
  return launch(kernel, int64_t{call.parts} * call.shares, stream, call, bytes, kSumThreads);
}

// Calls body(tiles, columns), constants, of 1, 2 or 4 tiles of ranks and 4 or 8 columns.
template <class Body>
cudaError_t with_sum_sizes(PairShape const& shape, Body const& body) {
  auto const with_columns = [&](auto tiles) {
    if (shape.n == 4) return body(tiles, std::integral_constant<int, 4>{});
    return body(tiles, std::integral_constant<int, 8>{});
  };
  if (shape.k == 16) return with_columns(std::integral_constant<int, 1>{});
  if (shape.k == 32) return with_columns(std::integral_constant<int, 2>{});
  return with_columns(std::integral_constant<int, 4>{});
}

inline cudaError_t launch_sums(SuffixSumsCall<BFloat16> const& call, cudaStream_t stream) {
  return with_sum_sizes(call.from.shape, [&](auto tiles, auto columns) {
    if constexpr (tiles() == 1) {  // rank 16 may not be half
      return cudaErrorInvalidValue;
    } else {
      return launch_suffix_sums<OwnedHalves<tiles(), columns()>>(call, stream);
    }
  });
}

inline cudaError_t launch_sums(SuffixSumsCall<float> const& call, cudaStream_t stream) {
  return with_sum_sizes(call.from.shape, [&](auto tiles, auto columns) {
    return call.from.shape.exact != 0
               ? launch_suffix_sums<OwnedFloats<tiles(), columns(), true>>(call, stream)
               : launch_suffix_sums<OwnedFloats<tiles(), columns(), false>>(call, stream);
  });
}

// `parts` are not 0.
template <class Number>
cudaError_t suffix_sums(PairGradientsOf<Number> const& args, SumParts const& parts, void* memory,
                        cudaStream_t stream) {
  auto const& shape = args.shape;
  int device = 0, most = 0;
  DYNEMB_CUDA_TRY(cudaGetDevice(&device));
  DYNEMB_CUDA_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  constexpr int64_t kOfOthers = 12 * 1024;  // plans, and rows of slots
  Scratch scratch(memory);
  auto* const sums = scratch.take<float>(parts.sums(shape));
  auto* const ranges = scratch.take<RowRange32>(parts.ranges(shape));
  if (parts.parts > 1) {
    auto const blocks = blocks_of_prefixes(shape, kWarpsPerBlock);
    PartRangesCall const call{shape, parts.suffixes, parts.parts, ranges};
    if (blocks > 0) DYNEMB_CUDA_TRY(launch(part_ranges_kernel, blocks, stream, call));
  }
  StageSources<Number> const from{shape, args.prefix, args.d_rows,
                                  StageLayout::of(shape, most - kOfOthers)};
  SuffixSumsCall<Number> const call{from, parts.parts > 1 ? ranges : nullptr, parts.parts,
                                    parts.shares, sums};
  DYNEMB_CUDA_TRY(launch_sums(call, stream));
  auto const size = shape.num_suffixes * shape.k * shape.n;
  return launch(sum_shares_kernel, persistent_blocks(ceil_div(size, kThreads), 8), stream,
                SumSharesCall{size, parts.shares, sums, args.d_suffix});
}

}  // namespace dynemb::cuda
