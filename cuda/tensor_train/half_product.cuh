// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/half_product.cuh: products of tiles of bfloat16 on tensor cores, summed in
// float32. Two numbers lie in a word, the first one low.
//
// A tile of 16 rows and 16 columns: word i of a lane is at row lane / 4 + i % 2 * 8, columns
// 2 * (lane % 4) + i / 2 * 8 and the next. One of 16 x 8: word i is at rows
// 2 * (lane % 4) + i * 8 and the next, column lane / 4. Sums as those of tile_product.cuh. Source:
// PTX ISA, mma.m16n8k16 with .bf16.
#pragma once

#include <cstdint>

#include "core/value_type.h"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

__device__ __forceinline__ uint32_t packed_halves(float first, float second) {
#if __CUDA_ARCH__ >= 800
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
#else
  BFloat16 low, high;
  from_float(first, &low);
  from_float(second, &high);
  return uint32_t{high.bits} << 16 | low.bits;
#endif
}

// Of two words the first halves, and the second ones.
__device__ __forceinline__ uint32_t low_halves(uint32_t a, uint32_t b) {
  return (a & 0xffffu) | b << 16;
}
__device__ __forceinline__ uint32_t high_halves(uint32_t a, uint32_t b) {
  return a >> 16 | (b & 0xffff0000u);
}

// sums += left @ right, by all lanes of a warp.
__device__ __forceinline__ void add_half_product(float (&sums)[4], uint32_t const (&left)[4],
                                                 uint32_t const (&right)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
#elif !defined(__CUDACC__)
  add_half_product_on_host(sums, left, right);
#endif
}

// Transposes tiles of 8 x 8 numbers of shared memory, by all lanes of a warp. Lane 8 * i + r gives
// where row r of tile i is, 16 bytes, aligned. Word i of a lane has rows 2 * (lane % 4) and the
// next of column lane / 4. Source: PTX ISA, ldmatrix with .trans.
template <int kTiles>
__device__ __forceinline__ void load_transposed(uint32_t (&words)[kTiles], void const* row) {
  static_assert(kTiles == 2 || kTiles == 4, "what one instruction loads");
#ifdef __CUDA_ARCH__
  auto const shared = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTiles == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "r"(shared)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared)
                 : "memory");
  }
#elif !defined(__CUDACC__)
  load_transposed_on_host(words, kTiles, row);
#endif
}

}  // namespace dynemb::cuda
