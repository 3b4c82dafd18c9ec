// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/row_octets.cuh: eight rows of a prefix at a time, for prefixes of 16 rows and
// whole tiles of ranks. The columns of a tile are the eight rows, and a suffix has a tile for each
// of its columns. So a lane reads and writes four numbers at once, and no load is in a branch.
#pragma once

#include "cuda/grid/host.h"
#include "cuda/tensor_train/numbers.cuh"
#include "cuda/tensor_train/pair_columns.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

constexpr int kOctet = 8;

inline bool has_octets(PairShape const& shape) {
  auto const ranks = shape.k == 8 || shape.k == 16 || shape.k == 32 || shape.k == 64;
  return shape.m == kTileRows && ranks && shape.n % 4 == 0;
}

// The rows of a prefix, and the suffixes of the first 32 of them, loaded ahead.
struct AheadRows {
  int32_t begin = 0, end = 0;
  int32_t suffix = -1;  // of row `lane`, as it is given

  __device__ __forceinline__ void load_rows(PairShape const& shape, int64_t prefix) {
    auto const exists = prefix < shape.num_prefixes;
    auto const rows = exists ? rows_of_prefix(shape, prefix) : RowRange{0, 0};
    end = static_cast<int32_t>(rows.end);
    begin = min(static_cast<int32_t>(rows.begin), end);
  }
  __device__ __forceinline__ void load_suffixes(PairShape const& shape) {
    suffix = suffix_of_lane(shape, begin);
  }
  __device__ __forceinline__ int32_t suffix_of_lane(PairShape const& shape, int32_t first) const {
    return lane_id() < end - first ? shape.of_suffix[int64_t{first} + lane_id()] : -1;
  }
};

// Calls body(prefix, rows) for the prefixes of a warp: `first` and every `step`-th from there. What
// the next ones need is on its way meanwhile.
template <class Body>
__device__ __forceinline__ void for_prefixes(PairShape const& shape, int64_t first, int64_t step,
                                             Body const& body) {
  AheadRows now, next;
  now.load_rows(shape, first);
  next.load_rows(shape, first + step);
  now.load_suffixes(shape);
#pragma unroll 1
  for (auto prefix = first; prefix < shape.num_prefixes; prefix += step) {
    next.load_suffixes(shape);
    AheadRows after;
    after.load_rows(shape, prefix + 2 * step);
    body(prefix, now);
    now = next;
    next = after;
  }
}

// Holds up to 32 rows of a prefix. Their suffixes' numbers are in the lanes.
struct RowChunk {
  int32_t count;
  int32_t suffix;    // of row `lane`; -1: there is none
  int32_t fallback;  // a suffix of one of the rows; -1: there is none

  // `given`: the suffix of row `lane`, as it is given.
  __device__ __forceinline__ RowChunk(PairShape const& shape, int32_t rows, int32_t given)
      : count(min(rows, 32)) {
    auto const exists = lane_id() < count && is_suffix(shape, given);
    suffix = exists ? given : -1;
    auto const some = __ballot_sync(kFullWarp, exists);
    fallback = __shfl_sync(kFullWarp, suffix, some == 0 ? 0 : __ffs(static_cast<int>(some)) - 1);
  }

  // All lanes call this for a row of the chunk.
  __device__ __forceinline__ int32_t suffix_of(int32_t row) const {
    return __shfl_sync(kFullWarp, suffix, row);
  }
};

// Calls body(begin, chunk) for all rows of a prefix.
template <class Body>
__device__ __forceinline__ void for_chunks(PairShape const& shape, AheadRows const& ahead,
                                           Body const& body) {
  auto given = ahead.suffix;
  for (auto begin = ahead.begin; begin < ahead.end;) {
    body(int64_t{begin}, RowChunk(shape, ahead.end - begin, given));
    if (ahead.end - begin <= 32) return;
    begin += 32;
    given = ahead.suffix_of_lane(shape, begin);
  }
}

// Sums over the rows of each prefix, by a warp in registers: 16 x 8 * kSteps numbers as the results
// of products lie. Calls add(begin, chunk, sums) for all rows, then write(at, first, second) for
// two numbers side by side of the array of prefixes.
template <int kSteps, class Add, class Write>
__device__ __forceinline__ void sum_over_rows(PairShape const& shape, Add const& add,
                                              Write const& write) {
  int64_t const offsets[2] = {prefix_row_offset(shape, sum_row(0)),
                              prefix_row_offset(shape, sum_row(2))};
  auto const warps = int64_t{gridDim.x} * kWarpsPerBlock;
  auto const own = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
  for_prefixes(shape, own, warps, [&](int64_t index, AheadRows const& ahead) {
    float sums[kSteps][4] = {};
    for_chunks(shape, ahead,
               [&](int64_t begin, RowChunk const& chunk) { add(begin, chunk, sums); });
    auto const out = prefix_offset(shape, index) + sum_column(0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        write(out + offsets[half] + s * 8, sums[s][2 * half], sums[s][2 * half + 1]);
      }
    }
  });
}

// Holds a prefix as the left matrix of a product, 16 x 8 * kSteps.
template <int kSteps, bool kExact>
struct HeldPrefix {
  LeftTile<kExact> tiles[kSteps];

  __device__ __forceinline__ HeldPrefix(float const* prefix, int64_t low, int64_t high) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        tiles[s].set(i, __ldg(prefix + (i % 2 == 0 ? low : high) + s * 8 + left_column(i)));
      }
    }
  }
};

// Multiplies four columns of eight rows.
template <int kSteps, bool kExact>
__device__ __forceinline__ void multiply_octet(HeldPrefix<kSteps, kExact> const& prefix,
                                               float const* suffix, int32_t n,
                                               float (&sums)[4][4]) {
  constexpr int kTogether = kSteps < 4 ? kSteps : 4;  // loads of so many steps are in flight
#pragma unroll
  for (int first = 0; first < kSteps; first += kTogether) {
    float4 numbers[kTogether][2];
#pragma unroll
    for (int s = 0; s < kTogether; ++s) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        numbers[s][i] = load_four(suffix + ((first + s) * 8 + right_row(i)) * n);
      }
    }
#pragma unroll
    for (int s = 0; s < kTogether; ++s) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        RightTile<kExact> right;
        for (int i = 0; i < 2; ++i) right.set(i, number_of(numbers[s][i], j));
        add_product<kExact>(sums[j], prefix.tiles[first + s], right);
      }
    }
  }
}

template <int kSteps, bool kExact>
__global__ void __launch_bounds__(kThreads, 2)
    octet_rows_kernel(__grid_constant__ PairRowsOf<float> const call) {
  auto const& shape = call.shape;
  auto const n = shape.n;
  auto const warps = int64_t{gridDim.x} * kWarpsPerBlock;
  auto const low = prefix_row_offset(shape, left_row(0));
  auto const high = prefix_row_offset(shape, left_row(1));
  for (auto index = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
       index < shape.num_prefixes; index += warps) {
    auto const rows = rows_of_prefix(shape, index);
    if (rows.begin >= rows.end) continue;
    HeldPrefix<kSteps, kExact> const prefix(call.prefix + prefix_offset(shape, index), low, high);
    for (auto begin = rows.begin; begin < rows.end; begin += 32) {
      auto const row = begin + lane_id();
      auto const left = static_cast<int32_t>(rows.end - begin);
      RowChunk const chunk(shape, left, row < rows.end ? shape.of_suffix[row] : -1);
      auto* const out = call.rows + begin * (kTileRows * n);
      for (int32_t first = 0; first < chunk.count; first += kOctet) {
        auto const number = max(0, chunk.suffix_of(first + right_column()));
        auto const* const suffix = call.suffix + int64_t{number} * (kSteps * 8 * n);
        int32_t const rows_of_lane[2] = {first + sum_column(0), first + sum_column(1)};
        bool const exists[2] = {chunk.suffix_of(rows_of_lane[0]) >= 0,
                                chunk.suffix_of(rows_of_lane[1]) >= 0};
        for (int32_t column = 0; column < n; column += 4) {
          float sums[4][4] = {};
          multiply_octet(prefix, suffix + column, n, sums);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (rows_of_lane[i % 2] >= chunk.count) continue;
            auto const own = exists[i % 2];
            auto* const to = out + (rows_of_lane[i % 2] * kTileRows + sum_row(i)) * n + column;
            *reinterpret_cast<float4*>(to) = {own ? sums[0][i] : 0.0f, own ? sums[1][i] : 0.0f,
                                              own ? sums[2][i] : 0.0f, own ? sums[3][i] : 0.0f};
          }
        }
      }
    }
  }
}

// Adds four columns of eight rows. Rows without a suffix have zeros as gradients.
template <int kSteps, bool kExact>
__device__ __forceinline__ void add_octet(float const* const (&d_rows)[2], bool const (&exists)[2],
                                          float const* const (&suffixes)[2], int32_t n,
                                          float (&sums)[kSteps][4]) {
  float4 gradients[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    gradients[i] = load_four_once(d_rows[i / 2] + left_row(i) * n);
  }
  constexpr int kTogether = kSteps < 4 ? kSteps : 4;  // loads of so many steps are in flight
#pragma unroll
  for (int first = 0; first < kSteps; first += kTogether) {
    float4 numbers[kTogether][2];
#pragma unroll
    for (int s = 0; s < kTogether; ++s) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        numbers[s][i] = load_four(suffixes[i] + ((first + s) * 8 + right_column()) * n);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      LeftTile<kExact> left;
#pragma unroll
      for (int i = 0; i < 4; ++i) left.set(i, exists[i / 2] ? number_of(gradients[i], j) : 0.0f);
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        RightTile<kExact> right;
        for (int i = 0; i < 2; ++i) right.set(i, number_of(numbers[s][i], j));
        if constexpr (kExact) {  // tensor cores truncate sums: over many rows that is a bias
          float part[4] = {};
          add_product<kExact>(part, left, right);
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[first + s][i] += part[i];
        } else {
          add_product<kExact>(sums[first + s], left, right);
        }
      }
    }
  }
}

template <int kSteps, bool kExact>
__global__ void __launch_bounds__(kThreads, 2)
    octet_gradients_kernel(__grid_constant__ PairGradientsOf<float> const args) {
  auto const n = args.shape.n;
  auto const add_chunk = [&](int64_t begin, RowChunk const& chunk, float (&sums)[kSteps][4]) {
    if (chunk.fallback < 0) return;
    auto const* const d_chunk = args.d_rows + begin * (kTileRows * n);
    for (int32_t first = 0; first < chunk.count; first += kOctet) {
      float const* d_rows[2];
      float const* suffixes[2];
      bool exists[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        auto const row = first + right_row(i);
        auto const number = chunk.suffix_of(row);
        exists[i] = number >= 0;
        // A suffix that the prefix has anyway: zeros times what is not finite are not zeros.
        auto const used = exists[i] ? number : chunk.fallback;
        d_rows[i] = d_chunk + min(row, chunk.count - 1) * (kTileRows * n);
        suffixes[i] = args.suffix + int64_t{used} * (kSteps * 8 * n);
      }
      for (int32_t column = 0; column < n; column += 4) {
        float const* const d_four[2] = {d_rows[0] + column, d_rows[1] + column};
        float const* const four[2] = {suffixes[0] + column, suffixes[1] + column};
        add_octet<kSteps, kExact>(d_four, exists, four, n, sums);
      }
    }
  };
  sum_over_rows<kSteps>(args.shape, add_chunk, [&](int64_t at, float first, float second) {
    *reinterpret_cast<float2*>(args.d_prefix + at) = {first, second};
  });
}

// Blocks of a kernel that looks ahead; `at_once` are on a multiprocessor. Those that come later
// even out that some prefixes have many rows.
inline int64_t blocks_of_gradients(PairShape const& shape, int at_once) {
  constexpr int kLater = 4;
  return persistent_blocks(blocks_of_prefixes(shape, kWarpsPerBlock), kLater * at_once);
}

// `shape` has octets, prefixes and suffixes.
inline cudaError_t octet_rows(PairRowsOf<float> const& call, cudaStream_t stream) {
  auto const blocks = blocks_of_prefixes(call.shape, kWarpsPerBlock);
  return with_steps(call.shape.k, call.shape.exact != 0, [&](auto steps, auto exact) {
    return launch(octet_rows_kernel<steps(), exact()>, blocks, stream, call);
  });
}

inline cudaError_t octet_gradients(PairGradientsOf<float> const& args, cudaStream_t stream) {
  auto const blocks = blocks_of_gradients(args.shape, 2);
  return with_steps(args.shape.k, args.shape.exact != 0, [&](auto steps, auto exact) {
    return launch(octet_gradients_kernel<steps(), exact()>, blocks, stream, args);
  });
}

}  // namespace dynemb::cuda
