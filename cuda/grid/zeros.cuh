// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/grid/zeros.cuh: an array that a kernel clears beside its own work: one launch less.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace dynemb::cuda {

struct Zeros {
  uint64_t* array;
  uint32_t count;

  // Block `rank` of `size` clears its share.
  __device__ __forceinline__ void clear(uint32_t rank, uint32_t size) const {
    auto const step = size * blockDim.x;
    for (auto i = rank * blockDim.x + threadIdx.x; i < count; i += step) array[i] = 0;
  }
};

}  // namespace dynemb::cuda
