// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/tile_product.cuh: products of small tiles on tensor cores, in TensorFloat-32 or
// as in float32.
//
// A product of two numbers of 11 bits is exact in float32. So an exact product splits each factor
// into a rounded number and what is left of it, and adds three products: the fourth is below the
// last bit.
#pragma once

#include <cstdint>

#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

constexpr int kTileColumns = 8;
constexpr int kTileRows = 16;

__device__ __forceinline__ uint32_t rounded_to_tf32(float x) {
#ifdef __CUDACC__
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#else
  return (__float_as_uint(x) + 0x1000) & ~0x1fffu;
#endif
}

// What a lane has of a tile.
template <int kNumbers, bool kExact>
struct Tile {
  uint32_t high[kNumbers];
  uint32_t low[kExact ? kNumbers : 1];

  __device__ __forceinline__ void set(int i, float x) {
    high[i] = rounded_to_tf32(x);
    if constexpr (kExact) low[i] = rounded_to_tf32(x - __uint_as_float(high[i]));
  }
};

// In a tile of 16 rows and 8 columns number i of a lane is at row left_row(i), column
// left_column(i). In one of 8 x 8 it is at row right_row(i), column right_column(). In the sums, 16
// x 8, it is at row sum_row(i), column sum_column(i). Source: PTX ISA, mma.m16n8k8 with .tf32.
template <bool kExact>
using LeftTile = Tile<4, kExact>;
template <bool kExact>
using RightTile = Tile<2, kExact>;

__device__ __forceinline__ int left_row(int i) { return lane_id() / 4 + i % 2 * 8; }
__device__ __forceinline__ int left_column(int i) { return lane_id() % 4 + i / 2 * 4; }
__device__ __forceinline__ int right_row(int i) { return lane_id() % 4 + i * 4; }
__device__ __forceinline__ int right_column() { return lane_id() / 4; }
__device__ __forceinline__ int sum_row(int i) { return lane_id() / 4 + i / 2 * 8; }
__device__ __forceinline__ int sum_column(int i) { return lane_id() % 4 * 2 + i % 2; }

__device__ __forceinline__ void add_tf32_product(float (&sums)[4], uint32_t const (&left)[4],
                                                 uint32_t const (&right)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
#elif !defined(__CUDACC__)
  add_product_on_host(sums, left, right);
#endif
}

// sums += left @ right, by all lanes of a warp.
template <bool kExact>
__device__ __forceinline__ void add_product(float (&sums)[4], LeftTile<kExact> const& left,
                                            RightTile<kExact> const& right) {
  if constexpr (kExact) {
    add_tf32_product(sums, left.low, right.high);
    add_tf32_product(sums, left.high, right.low);
  }
  add_tf32_product(sums, left.high, right.high);
}

}  // namespace dynemb::cuda
