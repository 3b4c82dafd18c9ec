// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/suffix_sums.cuh: gradients of suffixes, summed in registers. The blocks of a
// share of the prefixes divide the suffixes; each warp owns some columns of them, and adds the rows
// of these suffixes alone. A block copies prefixes and gradients of rows into shared memory, a
// stage ahead of the products. At the end the sums of all shares are added in order.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cuda/grid/async_copy.cuh"
#include "cuda/grid/host.h"
#include "cuda/tensor_train/pair_columns.cuh"
#include "cuda/tensor_train/staged_rows.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

constexpr int kSumWarps = 16;
constexpr int kSumThreads = 32 * kSumWarps;

// Floats of shared memory: suffixes of the staged rows, prefixes of the slots, gradients of rows.
struct StageLayout {
  static constexpr int32_t kPad = 8;  // so that four rows of a prefix lie in different banks

  int32_t slots, rows;  // of a stage
  int32_t prefixes, d_rows, floats;

  // Two stages take `bytes` at most; no slots: that is too little.
  static StageLayout of(PairShape const& shape, int64_t bytes) {
    auto const most = bytes / 2 / int64_t{sizeof(float)};
    auto const row_size = int64_t{shape.m} * shape.n;
    auto const prefix_size = int64_t{shape.m} * (shape.k + kPad);
    for (auto slots = kMostSlots; slots > 0; slots /= 2) {
      auto const left = most - slots * prefix_size;
      auto rows = left / (row_size + 1) / 4 * 4;
      if (rows > slots * kRowsOfSlot) rows = slots * kRowsOfSlot;
      if (rows < kRowsOfSlot || (slots > 1 && left < most / 2)) continue;
      auto const d_rows = rows + slots * prefix_size;
      return {slots, static_cast<int32_t>(rows), static_cast<int32_t>(rows),
              static_cast<int32_t>(d_rows), static_cast<int32_t>(d_rows + rows * row_size)};
    }
    return {};
  }
};

struct SuffixSumsCall {
  PairShape shape;  // m, k and n are powers of two
  float const* prefix;
  float const* d_rows;
  RowRange32 const* ranges;  // [parts, num_prefixes], or null: one part
  int32_t parts, shares;
  StageLayout layout;
  float* sums;  // [shares, num_suffixes, k, n]
  float* d_suffix;
};

struct PartRangesCall {
  PairShape shape;
  int32_t suffixes_of_part, parts;
  RowRange32* ranges;  // [parts, num_prefixes]
};

// How many tiles of 16 ranks and 8 columns a warp sums.
template <int kRankTiles>
struct OwnedTiles {
  static constexpr int ranks = kRankTiles;
  static constexpr int columns = kRankTiles == 4 ? 4 : 8;
};

inline int32_t rank_tiles_of(int32_t k) { return k <= 16 ? 1 : k <= 32 ? 2 : 4; }

// The columns of a block's suffixes.
inline int32_t columns_of_block(int32_t k) {
  return kSumWarps * 8 * (rank_tiles_of(k) == 4 ? 4 : 8);
}

// Number `i` of a lane's ranks, where 2 * t + h is at row lane / 4 + 8 * h of tile t. A lane's
// ranks are consecutive, four at most.
template <int kRankTiles>
__device__ __forceinline__ int32_t rank_of_lane(int i) {
  constexpr int kTogether = kRankTiles == 1 ? 2 : 4;
  return lane_id() / 4 * kTogether + i % kTogether + i / kTogether * 32;
}

// The ranks of a lane in the rows lane % 4 + 4 * q of a prefix.
template <int kRankTiles, bool kExact>
class StagedPrefix {
 public:
  __device__ __forceinline__ StagedPrefix(PairShape const& shape, float const* prefix) {
    constexpr int kTogether = kRankTiles == 1 ? 2 : 4;
    using Vector = std::conditional_t<kRankTiles == 1, float2, float4>;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      auto const m = lane_id() % 4 + 4 * q;
      auto const* const row = prefix + m * (shape.k + StageLayout::kPad);
#pragma unroll
      for (int i = 0; i < 2 * kRankTiles; i += kTogether) {
        auto const rank = rank_of_lane<kRankTiles>(i);
        Vector vector{};
        if (m < shape.m && rank < shape.k) vector = *reinterpret_cast<Vector const*>(row + rank);
        put(q, i, vector);
      }
    }
  }

  __device__ __forceinline__ LeftTile<kExact> tile(int t, int step) const {
    LeftTile<kExact> tile;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      auto const bits = numbers_[2 * step + i / 2][2 * t + i % 2];
      if constexpr (kExact) {
        tile.set(i, __uint_as_float(bits));
      } else {
        tile.high[i] = bits;
      }
    }
    return tile;
  }

 private:
  __device__ __forceinline__ void put(int q, int i, float x) {
    numbers_[q][i] = kExact ? __float_as_uint(x) : rounded_to_tf32(x);
  }
  __device__ __forceinline__ void put(int q, int i, float2 const& two) {
    put(q, i, two.x);
    put(q, i + 1, two.y);
  }
  __device__ __forceinline__ void put(int q, int i, float4 const& four) {
    put(q, i, float2{four.x, four.y});
    put(q, i + 2, float2{four.z, four.w});
  }

  uint32_t numbers_[4][2 * kRankTiles];  // rounded, unless exact
};

// Gradients of some rows are swizzled: those of rows side by side lie in other banks.
struct StagedGradients {
  int32_t row_size, swizzle;

  __device__ __forceinline__ explicit StagedGradients(PairShape const& shape)
      : row_size(shape.m * shape.n), swizzle(row_size % 32 == 0 ? 16 : 0) {}

  // Where number `i` of row `row` of a slot is, from the slot's first row on.
  __device__ __forceinline__ int32_t place(int32_t row, int32_t i) const {
    return row * row_size + (i ^ ((row & 1) * swizzle));
  }
};

// The sums of a warp: those of consecutive suffixes, whose columns stand side by side.
template <int kRankTiles, bool kExact>
class OwnedSums {
 public:
  __device__ __forceinline__ OwnedSums(PairShape const& shape, int32_t part)
      : shape_(shape), gradients_(shape) {
    n_shift_ = 31 - __clz(shape.n);
    auto const suffixes = Tiles::columns * kTileColumns >> n_shift_;
    first_ = (part * kSumWarps + static_cast<int32_t>(threadIdx.x) / 32) * suffixes;
    auto const left = shape.num_suffixes - first_;
    count_ = left < suffixes ? static_cast<uint32_t>(left > 0 ? left : 0)
                             : static_cast<uint32_t>(suffixes);
    in_tile_ = max(1, kTileColumns >> n_shift_);
    tiles_of_suffix_ = (1u << max(1, shape.n / kTileColumns)) - 1;
#pragma unroll
    for (int t = 0; t < kRankTiles; ++t) {
#pragma unroll
      for (int j = 0; j < Tiles::columns; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[t][j][i] = 0.0f;
      }
    }
  }

  // Adds the rows of a slot that belong to suffixes of this warp.
  __device__ __forceinline__ void add(float const* stage, StageLayout const& layout, int32_t number,
                                      Slot const& slot) {
    auto const* const suffixes = reinterpret_cast<int32_t const*>(stage) + slot.staged;
    auto const suffix = lane_id() < slot.count ? suffixes[lane_id()] : -1;
    auto own = static_cast<uint32_t>(suffix) - static_cast<uint32_t>(first_);
    if (own >= count_) own = kNone;
    auto const first_tile = own << n_shift_ >> 3;
    auto const tiles =
        __reduce_or_sync(kFullWarp, own == kNone ? 0u : tiles_of_suffix_ << first_tile);
    if (tiles == 0) return;
    auto const prefix_size = shape_.m * (shape_.k + StageLayout::kPad);
    StagedPrefix<kRankTiles, kExact> const prefix(shape_,
                                                  stage + layout.prefixes + number * prefix_size);
    auto const* const d_rows = stage + layout.d_rows + slot.staged * gradients_.row_size;
#pragma unroll
    for (int j = 0; j < Tiles::columns; ++j) {
      if ((tiles >> j & 1) != 0) add_tile(j, prefix, own, d_rows);
    }
  }

  // As [num_suffixes, k, n].
  __device__ void write(float* out) const {
#pragma unroll
    for (int j = 0; j < Tiles::columns; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        auto const column = j * kTileColumns + sum_column(c);
        auto const own = static_cast<uint32_t>(column >> n_shift_);
        if (own >= count_) continue;
        auto* const to =
            out + (int64_t{first_} + own) * shape_.k * shape_.n + (column & (shape_.n - 1));
#pragma unroll
        for (int i = 0; i < 2 * kRankTiles; ++i) {
          auto const rank = rank_of_lane<kRankTiles>(i);
          if (rank < shape_.k) to[rank * shape_.n] = sums_[i / 2][j][i % 2 * 2 + c];
        }
      }
    }
  }

 private:
  using Tiles = OwnedTiles<kRankTiles>;
  static constexpr uint32_t kNone = ~0u;

  __device__ __forceinline__ void add_tile(int j, StagedPrefix<kRankTiles, kExact> const& prefix,
                                           uint32_t own, float const* d_rows) {
    auto const column = j * kTileColumns + lane_id() / 4;
    auto const row = row_of(static_cast<uint32_t>(column >> n_shift_), j, own);
    RightTile<kExact> right[2];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      auto const m = lane_id() % 4 + 4 * q;
      auto const at = gradients_.place(row, (m << n_shift_) + (column & (shape_.n - 1)));
      right[q / 2].set(q % 2, row >= 0 && m < shape_.m ? d_rows[at] : 0.0f);
    }
#pragma unroll
    for (int t = 0; t < kRankTiles; ++t) {
      if constexpr (kExact) {  // tensor cores truncate sums: over many rows that is a bias
        float part[4] = {};
        for (int s = 0; s < 2; ++s) add_product<kExact>(part, prefix.tile(t, s), right[s]);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[t][j][i] += part[i];
      } else {
#pragma unroll
        for (int s = 0; s < 2; ++s) add_product<kExact>(sums_[t][j], prefix.tile(t, s), right[s]);
      }
    }
  }

  // The row, in its slot, of suffix `wanted`, which this lane has in tile j; -1: there is none.
  __device__ __forceinline__ int32_t row_of(uint32_t wanted, int j, uint32_t own) const {
    auto const first = static_cast<uint32_t>(j * kTileColumns >> n_shift_);
    int32_t row = -1;
    for (int32_t i = 0; i < in_tile_; ++i) {
      auto const suffix = first + static_cast<uint32_t>(i);
      auto const lanes = __ballot_sync(kFullWarp, own == suffix);
      if (suffix == wanted) row = __ffs(static_cast<int>(lanes)) - 1;
    }
    return row;
  }

  PairShape const& shape_;
  StagedGradients gradients_;
  int n_shift_;
  int32_t first_;             // of the suffixes
  uint32_t count_;            // of them
  int32_t in_tile_;           // suffixes that a tile has columns of
  uint32_t tiles_of_suffix_;  // a bit for each
  float sums_[kRankTiles][Tiles::columns][4];
};

// What all threads of a block copy: a slot, or a part of one, each warp.
class StageCopies {
 public:
  __device__ StageCopies(SuffixSumsCall const& call, int64_t* row_offsets)
      : call_(call), row_offsets_(row_offsets), gradients_(call.shape) {
    auto const m = static_cast<int32_t>(threadIdx.x);
    if (m < call.shape.m) row_offsets[m] = prefix_row_offset(call.shape, m);
    auto const warp = static_cast<int32_t>(threadIdx.x) / 32;
    slot_ = warp % call.layout.slots;
    first_ = lane_id() + warp / call.layout.slots * 32;
    step_ = kSumWarps / call.layout.slots * 32;
    chunks_of_row_ = 31 - __clz(gradients_.row_size) - 2;
    chunks_of_ranks_ = 31 - __clz(call.shape.k) - 2;
  }

  // The offsets of rows are there.
  __device__ __forceinline__ void begin(StagePlan const& plan, float* stage) const {
    if (slot_ >= plan.count) return;
    auto const slot = plan.slots[slot_];
    copy_rows(slot, stage);
    copy_prefix(slot, stage);
  }

 private:
  __device__ __forceinline__ void copy_rows(Slot const& slot, float* stage) const {
    if (first_ < slot.count) {
      auto* const suffixes = reinterpret_cast<int32_t*>(stage) + slot.staged;
      begin_copy(suffixes + first_, call_.shape.of_suffix + slot.first + first_);
    }
    auto const row_size = gradients_.row_size;
    auto const* const from = call_.d_rows + int64_t{slot.first} * row_size;
    auto* const to = stage + call_.layout.d_rows + slot.staged * row_size;
    for (auto i = first_; i < slot.count << chunks_of_row_; i += step_) {
      auto const row = i >> chunks_of_row_;
      begin_copy(vector(to + gradients_.place(row, 4 * i - row * row_size)), vector(from + 4 * i));
    }
  }

  __device__ __forceinline__ void copy_prefix(Slot const& slot, float* stage) const {
    auto const& shape = call_.shape;
    auto const stride = shape.k + StageLayout::kPad;
    auto const* const from = call_.prefix + prefix_offset(shape, slot.prefix);
    auto* const to = stage + call_.layout.prefixes + slot_ * shape.m * stride;
    for (auto i = first_; i < shape.m << chunks_of_ranks_; i += step_) {
      auto const m = i >> chunks_of_ranks_;
      auto const rank = 4 * i - m * shape.k;
      begin_copy(vector(to + m * stride + rank), vector(from + row_offsets_[m] + rank));
    }
  }

  static __device__ uint4* vector(float* at) { return reinterpret_cast<uint4*>(at); }
  static __device__ uint4 const* vector(float const* at) {
    return reinterpret_cast<uint4 const*>(at);
  }

  SuffixSumsCall const& call_;
  int64_t const* row_offsets_;
  StagedGradients gradients_;
  int32_t slot_, first_, step_;
  int chunks_of_row_, chunks_of_ranks_;  // powers of two
};

template <int kRankTiles, bool kExact>
__global__ void __launch_bounds__(kSumThreads, 1)
    suffix_sums_kernel(__grid_constant__ SuffixSumsCall const call) {
#ifdef __CUDACC__
  extern __shared__ uint4 memory[];
#else
  auto* const memory = memory_of_block();
#endif
  __shared__ StagePlan plans[3];
  __shared__ int64_t row_offsets[kTileRows];
  auto const& shape = call.shape;
  auto const& layout = call.layout;
  auto const part = static_cast<int32_t>(blockIdx.x) % call.parts;
  auto const share = static_cast<int32_t>(blockIdx.x) / call.parts;
  auto const plans_here = threadIdx.x / 32 == 0;
  auto const first = plans_here ? first_prefix_by_warp(shape, call.parts, share, call.shares) : 0;
  auto const last = plans_here ? first_prefix_by_warp(shape, call.parts, share + 1, call.shares) : 0;
  auto const* const ranges =
      call.ranges == nullptr ? nullptr : call.ranges + part * shape.num_prefixes;
  StagePlanner planner(shape, ranges, layout.slots, layout.rows, first, last);
  StageCopies const copies(call, row_offsets);
  OwnedSums<kRankTiles, kExact> sums(shape, part);
  auto const stage_of = [&](int32_t s) {
    return reinterpret_cast<float*>(memory) + s % 2 * layout.floats;
  };
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
    __syncthreads();  // the copies of all threads are there
    if (plans_here) planner.plan(plans[(s + 2) % 3]);
    auto const& plan = plans[s % 3];
    for (int32_t i = 0; i < plan.count; ++i) sums.add(stage_of(s), layout, i, plan.slots[i]);
  }
  sums.write(call.sums + share * shape.num_suffixes * shape.k * shape.n);
}

// Of each prefix the rows from the first to the last with a suffix of a part: a warp a prefix, a
// lane a part.
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
    sum_shares_kernel(__grid_constant__ SuffixSumsCall const call) {
  auto const size = call.shape.num_suffixes * call.shape.k * call.shape.n;
  auto const step = int64_t{gridDim.x} * kThreads;
  for (auto i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += step) {
    float sum = 0;
#pragma unroll 12
    for (int32_t share = 0; share < call.shares; ++share) sum += call.sums[share * size + i];
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

  explicit SumParts(PairShape const& shape) {
    suffixes = shape.n > 0 ? columns_of_block(shape.k) / shape.n : 0;
    parts = 0;
    shares = 0;
    auto const found = suffixes > 0 ? ceil_div(shape.num_suffixes, suffixes) : 0;
    if (!fits(shape) || found > kMostParts) return;
    parts = static_cast<int32_t>(std::max<int64_t>(1, found));
    auto const useful = ceil_div(shape.num_rows, kLeastRows);
    shares = static_cast<int32_t>(
        std::max<int64_t>(1, std::min(useful, std::max<int64_t>(1, kBlocks / parts))));
  }

  int64_t sums(PairShape const& shape) const {
    return shares * shape.num_suffixes * shape.k * shape.n;
  }
  int64_t ranges(PairShape const& shape) const { return parts > 1 ? parts * shape.num_prefixes : 0; }

 private:
  static bool is_power_of_two(int32_t x) { return x > 0 && (x & (x - 1)) == 0; }

  static bool fits(PairShape const& shape) {
    constexpr int64_t kLeastMemory = 96 * 1024;  // of a block, on all GPUs from Ampere on
    auto const powers =
        is_power_of_two(shape.m) && is_power_of_two(shape.k) && is_power_of_two(shape.n);
    return powers && shape.m <= kTileRows && shape.k >= 8 && shape.k <= 64 &&
           shape.n <= columns_of_block(shape.k) / kSumWarps && shape.m * shape.n >= 4 &&
           StageLayout::of(shape, kLeastMemory).slots > 0;
  }
};

template <int kRankTiles, bool kExact>
cudaError_t launch_suffix_sums(SuffixSumsCall const& call, cudaStream_t stream) {
  auto const bytes = 2 * sizeof(float) * static_cast<size_t>(call.layout.floats);
  auto* const kernel = suffix_sums_kernel<kRankTiles, kExact>;
  DYNEMB_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(bytes)));
  return launch(kernel, int64_t{call.parts} * call.shares, stream, call, bytes, kSumThreads);
}

// `parts` are not 0.
inline cudaError_t suffix_sums(PairGradientsArgs const& args, SumParts const& parts, void* memory,
                               cudaStream_t stream) {
  auto const& shape = args.shape;
  int device = 0, most = 0;
  DYNEMB_CUDA_TRY(cudaGetDevice(&device));
  DYNEMB_CUDA_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  constexpr int64_t kOfPlans = 2048;
  Scratch scratch(memory);
  auto* const sums = scratch.take<float>(parts.sums(shape));
  auto* const ranges = scratch.take<RowRange32>(parts.ranges(shape));
  if (parts.parts > 1) {
    auto const blocks = blocks_of_prefixes(shape, kWarpsPerBlock);
    PartRangesCall const call{shape, parts.suffixes, parts.parts, ranges};
    if (blocks > 0) DYNEMB_CUDA_TRY(launch(part_ranges_kernel, blocks, stream, call));
  }
  SuffixSumsCall const call{shape,
                            args.prefix,
                            args.d_rows,
                            parts.parts > 1 ? ranges : nullptr,
                            parts.parts,
                            parts.shares,
                            StageLayout::of(shape, most - kOfPlans),
                            sums,
                            args.d_suffix};
  auto const with = [&](auto tiles) {
    return shape.exact != 0 ? launch_suffix_sums<tiles(), true>(call, stream)
                            : launch_suffix_sums<tiles(), false>(call, stream);
  };
  auto const launched = [&] {
    auto const tiles = rank_tiles_of(shape.k);
    if (tiles == 1) return with(std::integral_constant<int, 1>{});
    if (tiles == 2) return with(std::integral_constant<int, 2>{});
    return with(std::integral_constant<int, 4>{});
  };
  DYNEMB_CUDA_TRY(launched());
  auto const size = shape.num_suffixes * shape.k * shape.n;
  return launch(sum_shares_kernel, persistent_blocks(ceil_div(size, kThreads), 8), stream, call);
}

}  // namespace dynemb::cuda
