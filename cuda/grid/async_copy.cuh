// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/grid/async_copy.cuh: copies into shared memory that a thread makes for itself while it goes
// on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace dynemb::cuda {

// Past the first-level cache, unless it is a word. `to` is in shared memory; both are aligned.
template <class T>
__device__ __forceinline__ void begin_copy(T* to, T const* from) {
  static_assert(sizeof(T) == 16 || sizeof(T) == 4, "what one instruction copies");
#ifdef __CUDA_ARCH__
  auto const shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (sizeof(T) == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(from) : "memory");
  }
#else
  *to = *from;
#endif
}

// The copies begun since the last end, perhaps none, belong together.
__device__ __forceinline__ void end_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// All copies are there but those that the last end_copies() put together.
__device__ __forceinline__ void wait_for_copies_before() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

}  // namespace dynemb::cuda
