// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/staged_suffixes.cuh: rows whose suffixes do not fit the first-level cache
// together. A block holds a part of the suffixes in shared memory and makes the rows that have one
// of them. So a row reads its suffix at the rate of shared memory, where the second-level cache
// would be the limit.
//
// A lane reads four ranks of a prefix at once: ranks are permuted, in prefix and suffix alike.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cuda/grid/host.h"
#include "cuda/tensor_train/pair_columns.cuh"
#include "cuda/tensor_train/row_octets.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

constexpr int kStagedWarps = 16;
constexpr int kStagedThreads = 32 * kStagedWarps;

struct StagedRowsCall {
  OctetRowsCall rows;
  int32_t parts, suffixes_of_part;
};

// A suffix in shared memory: of four columns at a time all ranks, those of one step of a product
// side by side.
template <int kSteps, int kColumns>
struct StagedSuffix {
  static constexpr int kRanks = 8 * kSteps;
  static constexpr int kQuads = kColumns / 4;
  static constexpr int kSize = kRanks * kColumns + 16;  // the next one begins in other banks

  // Where four columns of a rank are. The rank 16 * v + 4 * q + r is number r % 2 of lane q in step
  // 2 * v + r / 2.
  static __device__ __forceinline__ int place(int quad, int rank) {
    auto const step = rank / 16 * 2 + rank % 4 / 2;
    return (quad * kRanks + (2 * step + rank % 2) * 4 + rank % 16 / 4) * 4;
  }

  // Number i of this lane in a step.
  static __device__ __forceinline__ int place_in_step(int quad, int step, int i) {
    return (quad * kRanks + (2 * step + i) * 4 + lane_id() % 4) * 4;
  }
};

// The suffixes of a part, rounded unless exact, by all threads of a block.
template <int kSteps, int kColumns, bool kExact>
__device__ __forceinline__ void stage_suffixes(float const* from, int32_t count, float* to) {
  using Suffix = StagedSuffix<kSteps, kColumns>;
  constexpr int kOfSuffix = Suffix::kRanks * Suffix::kQuads;  // of four columns
  for (auto i = static_cast<int32_t>(threadIdx.x); i < count * kOfSuffix; i += kStagedThreads) {
    auto const suffix = i / kOfSuffix, rank = i % kOfSuffix / Suffix::kQuads;
    auto const quad = i % Suffix::kQuads;
    auto four = load_four(from + int64_t{i} * 4);
    if constexpr (!kExact) {
      four = {__uint_as_float(rounded_to_tf32(four.x)), __uint_as_float(rounded_to_tf32(four.y)),
              __uint_as_float(rounded_to_tf32(four.z)), __uint_as_float(rounded_to_tf32(four.w))};
    }
    *reinterpret_cast<float4*>(to + suffix * Suffix::kSize + Suffix::place(quad, rank)) = four;
  }
}

// A prefix as the left matrix of a product, its ranks permuted.
template <int kSteps, bool kExact>
struct PermutedPrefix {
  LeftTile<kExact> tiles[kSteps];

  __device__ __forceinline__ PermutedPrefix(float const* prefix, int64_t low, int64_t high) {
#pragma unroll
    for (int v = 0; v < kSteps / 2; ++v) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        auto const* const row = prefix + (half == 0 ? low : high);
        auto const four = load_four(row + 16 * v + 4 * (lane_id() % 4));
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          tiles[2 * v + r / 2].set(half + r % 2 * 2, number_of(four, r));
        }
      }
    }
  }
};

// The products of eight rows: of four columns each, sums as those of a tile.
template <int kSteps, int kColumns, bool kExact>
__device__ __forceinline__ void multiply_staged(PermutedPrefix<kSteps, kExact> const& prefix,
                                                float const* suffix,
                                                float (&sums)[kColumns / 4][4][4]) {
  using Suffix = StagedSuffix<kSteps, kColumns>;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#pragma unroll
    for (int quad = 0; quad < Suffix::kQuads; ++quad) {
      float4 numbers[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        numbers[i] = *reinterpret_cast<float4 const*>(suffix + Suffix::place_in_step(quad, s, i));
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        RightTile<kExact> right;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          auto const x = number_of(numbers[i], j);
          if constexpr (kExact) {
            right.set(i, x);
          } else {
            right.high[i] = __float_as_uint(x);
          }
        }
        add_product<kExact>(sums[quad][j], prefix.tiles[s], right);
      }
    }
  }
}

// Writes one row of this lane at m and m + 8, or zeros. With eight columns two neighbours exchange
// halves: a store then writes 32 bytes side by side.
template <int kColumns>
__device__ __forceinline__ void store_row(float* row, int which, bool own, bool exists,
                                          float const (&sums)[kColumns / 4][4][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    auto const i = 2 * half + which;
    auto const m = sum_row(i);
    auto const of = [&](int quad) -> float4 {
      auto const& some = sums[quad];
      return own ? float4{some[0][i], some[1][i], some[2][i], some[3][i]} : float4{0, 0, 0, 0};
    };
    if constexpr (kColumns == 4) {
      if (exists) *reinterpret_cast<float4*>(row + m * 4) = of(0);
    } else {
      auto const odd = m % 2 != 0;
      auto const first = of(0), second = of(1), given = odd ? first : second;
      float4 const got{
          __shfl_xor_sync(kFullWarp, given.x, 4), __shfl_xor_sync(kFullWarp, given.y, 4),
          __shfl_xor_sync(kFullWarp, given.z, 4), __shfl_xor_sync(kFullWarp, given.w, 4)};
      auto* const to = row + (m & ~1) * kColumns + (odd ? 4 : 0);
      if (!exists) continue;
      *reinterpret_cast<float4*>(to) = odd ? got : first;
      *reinterpret_cast<float4*>(to + kColumns) = odd ? second : got;
    }
  }
}

__device__ __forceinline__ void prefetch_to_l2([[maybe_unused]] float const* from) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#endif
}

// The rows of a prefix, and the suffixes of the first 32 of them, loaded ahead.
struct AheadRows {
  RowRange rows{0, 0};
  int32_t suffix = -1;  // of row `lane`, as it is given

  __device__ __forceinline__ void load_rows(PairShape const& shape, int64_t prefix) {
    rows = prefix < shape.num_prefixes ? rows_of_prefix(shape, prefix) : RowRange{0, 0};
  }
  __device__ __forceinline__ void load_suffixes(PairShape const& shape) {
    auto const row = rows.begin + lane_id();
    suffix = row < rows.end ? shape.of_suffix[row] : -1;
  }
};

template <int kSteps, int kColumns, bool kExact>
class StagedRows {
 public:
  __device__ __forceinline__ StagedRows(StagedRowsCall const& call, float const* suffixes,
                                        int32_t* chosen, int32_t part)
      : call_(call), shape_(call.rows.shape), suffixes_(suffixes), chosen_(chosen), part_(part) {
    first_ = part * call.suffixes_of_part;
    auto const left = static_cast<int32_t>(shape_.num_suffixes) - first_;
    count_ = static_cast<uint32_t>(min(max(left, 0), call.suffixes_of_part));
    low_ = prefix_row_offset(shape_, left_row(0));
    high_ = prefix_row_offset(shape_, left_row(1));
  }

  __device__ __forceinline__ void run(int64_t first, int64_t step) {
    AheadRows now, next;
    now.load_rows(shape_, first);
    next.load_rows(shape_, first + step);
    now.load_suffixes(shape_);
    for (auto prefix = first; prefix < shape_.num_prefixes; prefix += step) {
      next.load_suffixes(shape_);
      prefetch(prefix + step);
      AheadRows after;
      after.load_rows(shape_, prefix + 2 * step);
      make(prefix, now);
      now = next;
      next = after;
    }
  }

 private:
  __device__ __forceinline__ float const* at(int64_t prefix) const {
    return call_.rows.prefix + prefix_offset(shape_, prefix);
  }

  // Two lanes a row of the prefix, half of its ranks each.
  __device__ __forceinline__ void prefetch(int64_t prefix) const {
    if (prefix >= shape_.num_prefixes) return;
    auto const half = lane_id() % 2 * (kSteps * 4);
    prefetch_to_l2(at(prefix) + prefix_row_offset(shape_, lane_id() / 2) + half);
  }

  __device__ __forceinline__ void make(int64_t prefix, AheadRows const& ahead) {
    auto const [begin, end] = ahead.rows;
    if (begin >= end) return;
    PermutedPrefix<kSteps, kExact> const held(at(prefix), low_, high_);
    auto suffix = ahead.suffix;
    for (auto base = begin; base < end; base += 32) {
      if (base > begin) {
        suffix = base + lane_id() < end ? shape_.of_suffix[base + lane_id()] : -1;
      }
      make_chunk(held, base, base + lane_id() < end, suffix);
    }
  }

  // Rows of this part: those of its suffixes, and in the first part those without one.
  __device__ __forceinline__ void make_chunk(PermutedPrefix<kSteps, kExact> const& held,
                                             int64_t base, bool is_row, int32_t suffix) {
    auto const own = static_cast<uint32_t>(suffix) - static_cast<uint32_t>(first_);
    auto const has_own = is_row && own < count_;
    auto const has_none =
        part_ == 0 && is_row &&
        static_cast<uint32_t>(suffix) >= static_cast<uint64_t>(shape_.num_suffixes);
    auto const lanes = __ballot_sync(kFullWarp, has_own || has_none);
    if (lanes == 0) return;
    auto const count = __popc(lanes);
    __syncwarp();
    if (has_own || has_none) {
      auto const number = has_own ? static_cast<int32_t>(own) + 1 : 0;
      chosen_[__popc(lanes & lanes_below())] = number << 5 | lane_id();
    }
    __syncwarp();
    for (int32_t octet = 0; octet < count; octet += kOctet) {
      auto const right = chosen_[min(octet + right_column(), count - 1)] >> 5;
      float sums[kColumns / 4][4][4] = {};
      auto const* const staged =
          suffixes_ + max(right - 1, 0) * StagedSuffix<kSteps, kColumns>::kSize;
      multiply_staged<kSteps, kColumns, kExact>(held, staged, sums);
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        auto const index = octet + sum_column(which);
        auto const chosen = chosen_[min(index, count - 1)];
        auto* const row = call_.rows.rows + (base + chosen % 32) * (kTileRows * kColumns);
        store_row<kColumns>(row, which, chosen >> 5 > 0, index < count, sums);
      }
    }
  }

  StagedRowsCall const& call_;
  PairShape const& shape_;
  float const* suffixes_;
  int32_t* chosen_;  // of the warp, 32 of them: number of a suffix in the part plus 1, row
  int32_t part_, first_;
  uint32_t count_;
  int64_t low_, high_;
};

template <int kSteps, int kColumns, bool kExact>
__global__ void __launch_bounds__(kStagedThreads, 1)
    staged_rows_kernel(__grid_constant__ StagedRowsCall const call) {
#ifdef __CUDACC__
  extern __shared__ uint4 memory[];
#else
  auto* const memory = memory_of_block();
#endif
  __shared__ int32_t chosen[kStagedWarps][32];
  auto* const suffixes = reinterpret_cast<float*>(memory);
  auto const& shape = call.rows.shape;
  auto const part = static_cast<int32_t>(blockIdx.x) % call.parts;
  auto const share = int64_t{blockIdx.x} / call.parts;
  auto const shares = int64_t{gridDim.x} / call.parts;
  auto const first = part * call.suffixes_of_part;
  auto const count = min(static_cast<int32_t>(shape.num_suffixes) - first, call.suffixes_of_part);
  auto const* const from = call.rows.suffix + int64_t{first} * (kSteps * 8 * kColumns);
  stage_suffixes<kSteps, kColumns, kExact>(from, count, suffixes);
  __syncthreads();
  auto const warp = static_cast<int64_t>(threadIdx.x) / 32;
  StagedRows<kSteps, kColumns, kExact> rows(call, suffixes, chosen[warp], part);
  rows.run(share * kStagedWarps + warp, shares * kStagedWarps);
}

// ---- host ---------------------------------------------------------------------------------------

// How the suffixes of a call are divided.
struct StagedParts {
  static constexpr int64_t kFirstLevel = 160 * 1024;  // bytes of suffixes that the cache holds
  static constexpr int64_t kOthers = 4096;            // bytes of shared memory besides suffixes
  static constexpr int32_t kMost = 4;

  int32_t suffixes = 0;  // of a part
  int32_t parts = 0;     // 0: other kernels are for these sizes
  int64_t bytes = 0;

  StagedParts(PairShape const& shape, int64_t shared_bytes) {
    auto const sizes = (shape.k == 32 || shape.k == 64) && (shape.n == 4 || shape.n == 8);
    if (shape.m != kTileRows || !sizes) return;
    auto const floats = int64_t{shape.k} * shape.n;
    auto const size = int64_t{sizeof(float)} * (floats + 16);
    if (shape.num_suffixes * floats * int64_t{sizeof(float)} <= kFirstLevel) return;
    auto const most = (shared_bytes - kOthers) / size;
    if (most <= 0 || ceil_div(shape.num_suffixes, most) > kMost) return;
    parts = static_cast<int32_t>(ceil_div(shape.num_suffixes, most));
    suffixes = static_cast<int32_t>(ceil_div(shape.num_suffixes, parts));
    bytes = suffixes * size;
  }
};

template <int kSteps, int kColumns, bool kExact>
cudaError_t launch_staged_rows(StagedRowsCall const& call, int64_t bytes, cudaStream_t stream) {
  auto* const kernel = staged_rows_kernel<kSteps, kColumns, kExact>;
  DYNEMB_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(bytes)));
  auto const useful = ceil_div(call.rows.shape.num_prefixes, kStagedWarps);
  auto const shares = std::max<int64_t>(1, std::min(useful, multiprocessors() / call.parts));
  return launch(kernel, shares * call.parts, stream, call, static_cast<size_t>(bytes),
                kStagedThreads);
}

// `parts.parts` is not 0.
inline cudaError_t staged_rows(OctetRowsCall const& rows, StagedParts const& parts,
                               cudaStream_t stream) {
  StagedRowsCall const call{rows, parts.parts, parts.suffixes};
  auto const with = [&](auto steps, auto columns) {
    return rows.shape.exact != 0
               ? launch_staged_rows<steps(), columns(), true>(call, parts.bytes, stream)
               : launch_staged_rows<steps(), columns(), false>(call, parts.bytes, stream);
  };
  auto const with_columns = [&](auto steps) {
    if (rows.shape.n == 4) return with(steps, std::integral_constant<int, 4>{});
    return with(steps, std::integral_constant<int, 8>{});
  };
  if (rows.shape.k == 32) return with_columns(std::integral_constant<int, 4>{});
  return with_columns(std::integral_constant<int, 8>{});
}

}  // namespace dynemb::cuda
