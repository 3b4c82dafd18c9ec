// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/staged_suffixes.cuh: rows whose suffixes are in shared memory. A block holds a
// part of the suffixes and makes the rows that have one of them. So a row reads its suffix at the
// rate of shared memory, where a cache would be the limit.
//
// Factors say how both are read and multiplied: StagedFloats or StagedHalves.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cuda/grid/host.h"
#include "cuda/tensor_train/pair_columns.cuh"
#include "cuda/tensor_train/row_octets.cuh"
#include "cuda/tensor_train/staged_floats.cuh"
#include "cuda/tensor_train/staged_halves.cuh"

namespace dynemb::cuda {

constexpr int kStagedWarps = 16;
constexpr int kStagedThreads = 32 * kStagedWarps;

template <class Number>
struct StagedRowsCall {
  PairRowsOf<Number> rows;
  int32_t parts, suffixes_of_part;
};

__device__ __forceinline__ void prefetch_to_l2([[maybe_unused]] void const* from) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#endif
}

template <class Factors>
class StagedRows {
 public:
  using Number = typename Factors::Number;

  __device__ __forceinline__ StagedRows(StagedRowsCall<Number> const& call, char const* suffixes,
                                        int32_t* chosen, int32_t part)
      : call_(call), shape_(call.rows.shape), suffixes_(suffixes), chosen_(chosen), part_(part) {
    first_ = part * call.suffixes_of_part;
    auto const left = static_cast<int32_t>(shape_.num_suffixes) - first_;
    count_ = static_cast<uint32_t>(min(max(left, 0), call.suffixes_of_part));
    low_ = prefix_row_offset(shape_, left_row(0));
    high_ = prefix_row_offset(shape_, left_row(1));
  }

  __device__ __forceinline__ void run(int64_t first, int64_t step) {
    for_prefixes(shape_, first, step, [&](int64_t prefix, AheadRows const& ahead) {
      prefetch(prefix + step);
      make(prefix, ahead);
    });
  }

 private:
  using Prefix = typename Factors::Prefix;

  __device__ __forceinline__ Number const* at(int64_t prefix) const {
    return call_.rows.prefix + prefix_offset(shape_, prefix);
  }

  // Two lanes a row of the prefix, half of its ranks each.
  __device__ __forceinline__ void prefetch(int64_t prefix) const {
    if (prefix >= shape_.num_prefixes) return;
    auto const half = lane_id() % 2 * (Factors::kRanks / 2);
    prefetch_to_l2(at(prefix) + prefix_row_offset(shape_, lane_id() / 2) + half);
  }

  __device__ __forceinline__ void make(int64_t prefix, AheadRows const& ahead) {
    auto const begin = ahead.begin, end = ahead.end;
    if (begin >= end) return;
    Prefix const held(at(prefix), low_, high_);
    auto suffix = ahead.suffix;
    for (auto base = begin; base < end; base += 32) {
      if (base > begin) suffix = ahead.suffix_of_lane(shape_, base);
      make_chunk(held, base, base + lane_id() < end, suffix);
    }
  }

  // Rows of this part: those of its suffixes, and in the first part those without one.
  __device__ __forceinline__ void make_chunk(Prefix const& held, int64_t base, bool is_row,
                                             int32_t suffix) {
    auto const own = static_cast<uint32_t>(suffix) - static_cast<uint32_t>(first_);
    auto const has_own = is_row && own < count_;
    auto const has_none = part_ == 0 && is_row && !is_suffix(shape_, suffix);
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
      typename Factors::Sums sums = {};
      Factors::multiply(held, suffixes_ + max(right - 1, 0) * Factors::kBytes, sums);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        auto const index = octet + sum_column(i);
        auto const chosen = chosen_[min(index, count - 1)];
        auto* const row = call_.rows.rows + (base + chosen % 32) * (kTileRows * Factors::kColumns);
        store_row(row, i, chosen >> 5 > 0, index < count, sums);
      }
    }
  }

  // Sums of number i of this lane, or zeros.
  static __device__ __forceinline__ void store_row(Number* row, int i, bool own, bool exists,
                                                   typename Factors::Sums const& sums) {
    float4 columns[Factors::kQuads];
#pragma unroll
    for (int quad = 0; quad < Factors::kQuads; ++quad) {
      auto const& some = sums[quad];
      columns[quad] =
          own ? float4{some[0][i], some[1][i], some[2][i], some[3][i]} : float4{0, 0, 0, 0};
    }
    Factors::store(row, sum_row(i), exists, columns);
  }

  StagedRowsCall<Number> const& call_;
  PairShape const& shape_;
  char const* suffixes_;
  int32_t* chosen_;  // of the warp, 32 of them: number of a suffix in the part plus 1, row
  int32_t part_, first_;
  uint32_t count_;
  int64_t low_, high_;
};

template <class Factors>
__global__ void __launch_bounds__(kStagedThreads, 1)
    staged_rows_kernel(__grid_constant__ StagedRowsCall<typename Factors::Number> const call) {
#ifdef __CUDACC__
  extern __shared__ uint4 memory[];
#else
  auto* const memory = memory_of_block();
#endif
  __shared__ int32_t chosen[kStagedWarps][32];
  auto* const suffixes = reinterpret_cast<char*>(memory);
  auto const& shape = call.rows.shape;
  auto const part = static_cast<int32_t>(blockIdx.x) % call.parts;
  auto const share = int64_t{blockIdx.x} / call.parts;
  auto const shares = int64_t{gridDim.x} / call.parts;
  auto const first = part * call.suffixes_of_part;
  auto const count = min(static_cast<int32_t>(shape.num_suffixes) - first, call.suffixes_of_part);
  auto const* const from =
      call.rows.suffix + int64_t{first} * (Factors::kRanks * Factors::kColumns);
  Factors::stage(from, count, suffixes);
  __syncthreads();
  auto const warp = static_cast<int64_t>(threadIdx.x) / 32;
  StagedRows<Factors> rows(call, suffixes, chosen[warp], part);
  rows.run(share * kStagedWarps + warp, shares * kStagedWarps);
}

// ---- host ---------------------------------------------------------------------------------------

// How the suffixes of a call are divided.
struct StagedParts {
  static constexpr int64_t kOthers = 4096;  // bytes of shared memory besides suffixes
  static constexpr int32_t kMost = 4;

  int32_t suffixes = 0;  // of a part
  int32_t parts = 0;     // 0: other kernels are for these sizes

  // Halves have no other kernel for rows, so they have parts for all sizes that may be half.
  StagedParts(PairShape const& shape, int64_t suffix_bytes, int64_t shared_bytes) {
    auto const sizes = (shape.k == 32 || shape.k == 64) && (shape.n == 4 || shape.n == 8);
    if (shape.m != kTileRows || !sizes) return;
    auto const most = (shared_bytes - kOthers) / suffix_bytes;
    if (most <= 0 || (!is_half(shape) && ceil_div(shape.num_suffixes, most) > kMost)) return;
    parts = static_cast<int32_t>(std::max<int64_t>(1, ceil_div(shape.num_suffixes, most)));
    suffixes = static_cast<int32_t>(std::max<int64_t>(1, ceil_div(shape.num_suffixes, parts)));
  }
};

template <class Factors>
cudaError_t launch_staged_rows(PairRowsOf<typename Factors::Number> const& rows,
                               StagedParts const& parts, cudaStream_t stream) {
  StagedRowsCall<typename Factors::Number> const call{rows, parts.parts, parts.suffixes};
  auto* const kernel = staged_rows_kernel<Factors>;
  auto const bytes = parts.suffixes * Factors::kBytes;
  DYNEMB_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  auto const useful = ceil_div(rows.shape.num_prefixes, kStagedWarps);
  auto const shares = std::max<int64_t>(1, std::min(useful, multiprocessors() / call.parts));
  return launch(kernel, shares * call.parts, stream, call, static_cast<size_t>(bytes),
                kStagedThreads);
}

// Calls body(ranks, columns), constants, of 32 or 64 ranks and 4 or 8 columns.
template <class Body>
cudaError_t with_staged_sizes(PairShape const& shape, Body const& body) {
  auto const with_columns = [&](auto ranks) {
    if (shape.n == 4) return body(ranks, std::integral_constant<int, 4>{});
    return body(ranks, std::integral_constant<int, 8>{});
  };
  if (shape.k == 32) return with_columns(std::integral_constant<int, 32>{});
  return with_columns(std::integral_constant<int, 64>{});
}

// Makes the rows where these sizes are staged, and says so in `staged`.
inline cudaError_t staged_rows(PairRowsOf<float> const& rows, int64_t shared_bytes,
                               cudaStream_t stream, bool* staged) {
  auto const launched = [&](auto factors) {
    using Factors = decltype(factors);
    StagedParts const parts(rows.shape, Factors::kBytes, shared_bytes);
    *staged = parts.parts > 0;
    return *staged ? launch_staged_rows<Factors>(rows, parts, stream) : cudaSuccess;
  };
  return with_staged_sizes(rows.shape, [&](auto ranks, auto columns) {
    return rows.shape.exact != 0 ? launched(StagedFloats<ranks(), columns(), true>{})
                                 : launched(StagedFloats<ranks(), columns(), false>{});
  });
}

inline cudaError_t staged_rows(PairRowsOf<BFloat16> const& rows, int64_t shared_bytes,
                               cudaStream_t stream) {
  return with_staged_sizes(rows.shape, [&](auto ranks, auto columns) {
    using Factors = StagedHalves<ranks(), columns()>;
    StagedParts const parts(rows.shape, Factors::kBytes, shared_bytes);
    return launch_staged_rows<Factors>(rows, parts, stream);
  });
}

}  // namespace dynemb::cuda
