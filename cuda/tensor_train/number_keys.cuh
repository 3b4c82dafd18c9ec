// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/number_keys.cuh: the keys by which the numbers of a batch are sorted, and the
// counts and zeros that the sort begins with.
#pragma once

#include <cstdint>

#include "core/distinct.h"
#include "cuda/sort/segments.cuh"

namespace dynemb::cuda {

constexpr int kNumbersInFlight = 4;  // of a thread
constexpr int64_t kNumbersOfRow = kNumbersInFlight * kKeysThreads;

struct NumberKeysCall {
  uint32_t const* numbers;
  uint32_t num_items;
  uint32_t items_of_row;
  NumberParts parts;
  uint32_t* keys;
  uint32_t digit_mask;
  SortTally tally;
};

__global__ void __launch_bounds__(kKeysThreads, 2)
    number_keys_kernel(__grid_constant__ NumberKeysCall const call) {
  __shared__ uint32_t counts[kDigits];
  if (threadIdx.x < kDigits) counts[threadIdx.x] = 0;
  call.tally.clear(blockIdx.x * kKeysThreads + threadIdx.x, gridDim.x * kKeysThreads);
  __syncthreads();
  auto const begin = blockIdx.x * call.items_of_row;
  auto const end = min(begin + call.items_of_row, call.num_items);
  for (auto base = begin + threadIdx.x; base < end; base += kNumbersInFlight * kKeysThreads) {
    uint32_t numbers[kNumbersInFlight];
#pragma unroll
    for (uint32_t u = 0; u < kNumbersInFlight; ++u) {
      auto const i = base + u * kKeysThreads;
      numbers[u] = i < end ? call.numbers[i] : kNoNumber;
    }
#pragma unroll
    for (uint32_t u = 0; u < kNumbersInFlight; ++u) {
      auto const i = base + u * kKeysThreads;
      if (i >= end) break;
      auto const key = call.parts.key_of(numbers[u]);
      call.keys[i] = key;
      atomicAdd(counts + (key & call.digit_mask), 1u);
    }
  }
  __syncthreads();
  if (threadIdx.x < kDigits) {
    call.tally.rows[blockIdx.x * kDigits + threadIdx.x] = counts[threadIdx.x];
  }
}

}  // namespace dynemb::cuda
