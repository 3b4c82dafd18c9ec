// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/numbers.cuh: several numbers of a factor or a row, read and written at once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "core/value_type.h"
#include "cuda/tensor_train/half_product.cuh"

namespace dynemb::cuda {

// Words of 4, 8 or 16 bytes, aligned to their size.
template <class Vector>
__device__ __forceinline__ Vector load_vector(void const* from) {
#ifdef __CUDA_ARCH__
  return __ldg(static_cast<Vector const*>(from));
#else
  Vector vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
#endif
}

__device__ __forceinline__ float4 load_four(float const* from) { return load_vector<float4>(from); }

// Read once only: it should not push out what is read again.
__device__ __forceinline__ float4 load_four_once(float const* from) {
#ifdef __CUDA_ARCH__
  float4 x;
  asm("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
      : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
      : "l"(from));
  return x;
#else
  return load_four(from);
#endif
}

// Loads a vector of 8 or 16 bytes in the same way.
template <class Vector>
__device__ __forceinline__ Vector load_once(void const* from) {
#ifdef __CUDA_ARCH__
  Vector x;
  if constexpr (sizeof(Vector) == 8) {
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(from));
  } else {
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
        : "l"(from));
  }
  return x;
#else
  return load_vector<Vector>(from);
#endif
}

__device__ __forceinline__ float number_of(float4 const& four, int i) {
  return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

__device__ __forceinline__ uint2 packed_four(float4 const& four) {
  return {packed_halves(four.x, four.y), packed_halves(four.z, four.w)};
}

}  // namespace dynemb::cuda
