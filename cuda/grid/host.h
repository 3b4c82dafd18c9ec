// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/grid/host.h: what the host side of every operation needs: sizes of grids, pieces of scratch.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/launch.h"

// Returns from the calling function with the first error.
#define DYNEMB_CUDA_TRY(expression)                       \
  do {                                                    \
    cudaError_t const dynemb_error = (expression);        \
    if (dynemb_error != cudaSuccess) return dynemb_error; \
  } while (false)

namespace dynemb::cuda {

constexpr int kThreads = 256;  // of a block, unless a kernel says otherwise
constexpr int kWarpsPerBlock = kThreads / 32;

// Up to so many ids launches take longer than the work of all multiprocessors.
constexpr int64_t kSmallBatch = 1 << 18;

__host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int64_t multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 1;
  }
  return count;
}

// Items of a warp, a lane each at first: fewer where there would not be enough warps to hide the
// memory's latency.
inline int32_t items_per_warp(int64_t num_items) {
  constexpr int64_t kEnoughWarps = 4096;
  int32_t items = 32;
  while (items > 8 && num_items / items < kEnoughWarps) items /= 2;
  return items;
}

// Blocks of a kernel that loops until its work, known on the device only, is done.
inline int64_t persistent_blocks(int64_t most_useful, int per_multiprocessor) {
  return std::max<int64_t>(1, std::min(most_useful, multiprocessors() * per_multiprocessor));
}

// Blocks of kThreads that this device has room for at the same time.
template <class Call>
int64_t blocks_side_by_side(void (*kernel)(Call), size_t shared_bytes) {
  int blocks = 0;
  auto const error =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, shared_bytes);
  return error == cudaSuccess ? blocks * multiprocessors() : 0;
}

// Parameters lie from byte 0x210 of a bank of constants on. ptxas of CUDA 13.0 writes an indexed
// load behind byte 0x8000 with a negative offset, and it reads elsewhere: so no call is that large,
// though CUDA allows 32,764 bytes.
constexpr size_t kMostParameterBytes = 0x8000 - 0x210;

template <class Call>
cudaError_t launch(void (*kernel)(Call), int64_t blocks, cudaStream_t stream, Call const& call,
                   size_t shared_bytes = 0, int threads = kThreads) {
  static_assert(sizeof(Call) <= kMostParameterBytes);
#ifdef __CUDACC__
  kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes, stream>>>(call);
  return cudaGetLastError();
#else  // tests/cuda, where there is no GPU
  return run_blocks(kernel, blocks, threads, shared_bytes, stream, call);
#endif
}

// As launch, but on Hopper and later the blocks may begin before the kernel in front has ended
// (programmatic dependent launch), so this one must begin with wait_for_earlier(). That is empty in
// code for older GPUs, which may run on a new one: such a kernel is launched as any other.
template <class Call>
cudaError_t launch_early(void (*kernel)(Call), int64_t blocks, cudaStream_t stream,
                         Call const& call, size_t shared_bytes = 0, int threads = kThreads) {
  static_assert(sizeof(Call) <= kMostParameterBytes);
#ifdef __CUDACC__
  cudaFuncAttributes code{};
  DYNEMB_CUDA_TRY(cudaFuncGetAttributes(&code, kernel));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = code.ptxVersion >= 90 ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, call);
#else
  return launch(kernel, blocks, stream, call, shared_bytes, threads);
#endif
}

// Hands out aligned pieces of scratch memory. Made without memory, it only measures.
class Scratch {
 public:
  explicit Scratch(void* base) : base_(reinterpret_cast<uintptr_t>(base)) {}

  template <class T>
  T* take(int64_t count) {
    auto const address = base_ + used_;
    auto const bytes = sizeof(T) * static_cast<size_t>(count);
    used_ += (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    return reinterpret_cast<T*>(address);
  }

  size_t used() const { return used_; }

 private:
  uintptr_t base_;
  size_t used_ = 0;
};

}  // namespace dynemb::cuda
