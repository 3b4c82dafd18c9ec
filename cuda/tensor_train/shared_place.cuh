// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/shared_place.cuh: a place in shared memory that stays in a register. A compiler
// short of registers computes a pointer again for each load, in eight instructions.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace dynemb::cuda {

class SharedPlace {
 public:
#ifdef __CUDA_ARCH__
  __device__ __forceinline__ explicit SharedPlace(void const* memory)
      : at_(static_cast<uint32_t>(__cvta_generic_to_shared(memory))) {
    asm volatile("" : "+r"(at_));
  }

  // The number that lies `bytes` from here.
  __device__ __forceinline__ float load(int32_t bytes) const {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];"
                 : "=f"(x)
                 : "r"(at_ + static_cast<uint32_t>(bytes))
                 : "memory");
    return x;
  }

 private:
  uint32_t at_;
#else
  explicit SharedPlace(void const* memory) : at_(static_cast<char const*>(memory)) {}

  float load(int32_t bytes) const { return *reinterpret_cast<float const*>(at_ + bytes); }

 private:
  char const* at_;
#endif
};

}  // namespace dynemb::cuda
