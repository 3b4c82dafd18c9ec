// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/prefetch.cuh: a line is asked for before it is known who wants it.
#pragma once

namespace dynemb::cuda {

// Into the second-level cache.
__device__ __forceinline__ void prefetch_line(void const* address) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
#else
  static_cast<void>(address);
#endif
}

}  // namespace dynemb::cuda
