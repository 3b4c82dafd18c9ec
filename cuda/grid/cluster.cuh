// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/grid/cluster.cuh: clusters, blocks that run side by side and write to each other's shared
// memory: of compute capability 9.0 and above. Kernels made of these are compiled for older ones
// too, where most_clusters says that there are none.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cuda/grid/host.h"

namespace dynemb::cuda {

// Returns the number of the block in its cluster.
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

__device__ __forceinline__ uint32_t cluster_size() {
  uint32_t size = 1;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#endif
  return size;
}

// All threads of the cluster call this. What they wrote before they arrived, all can read after the
// wait.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// When all have arrived here, all have begun: nothing else is known of them.
__device__ __forceinline__ void cluster_arrive_begun() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}

// Where an object of this block's shared memory lies in that of block `rank`.
__device__ __forceinline__ uint32_t address_in_block(void const* shared, uint32_t rank) {
  auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(address), "r"(rank));
#endif
  return address;
}

// Between two barriers during which the block runs: none may write to one that has not begun, or
// has ended.
__device__ __forceinline__ void store_in_block(uint2* shared, uint32_t rank, uint2 value) {
  [[maybe_unused]] auto const address = address_in_block(shared, rank);
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(value.x),
               "r"(value.y)
               : "memory");
#endif
}

__device__ __forceinline__ void store_in_block(uint4* shared, uint32_t rank, uint4 const& value) {
  [[maybe_unused]] auto const address = address_in_block(shared, rank);
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
#endif
}

// ---- host ---------------------------------------------------------------------------------------

// A launch of blocks in clusters.
struct ClusterShape {
  int clusters;
  int blocks;  // of a cluster: 1, 2, 4, 8 or 16
  int threads;
  size_t shared_bytes;
};

// cudaLaunchConfig_t points to its attribute: so it stays in one place.
struct ClusterLaunch {
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config;

  ClusterLaunch(ClusterShape const& shape, cudaStream_t stream) : attribute(), config() {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(shape.blocks), 1, 1};
    config.gridDim = dim3(static_cast<unsigned>(shape.clusters * shape.blocks));
    config.blockDim = dim3(static_cast<unsigned>(shape.threads));
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  ClusterLaunch(ClusterLaunch const&) = delete;
  ClusterLaunch& operator=(ClusterLaunch const&) = delete;
};

// Clusters of the current device that run at the same time; 0 if it has none of this shape.
template <class Call>
int query_most_clusters(void (*kernel)(Call), ClusterShape const& shape) {
  ClusterLaunch const launch(shape, nullptr);
  cudaFuncAttributes attributes;
  int clusters = 0;
  auto const bytes = static_cast<int>(shape.shared_bytes);
  auto const there =
      cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90 &&
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) ==
          cudaSuccess &&
      cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) ==
          cudaSuccess &&
      cudaOccupancyMaxActiveClusters(&clusters, kernel, &launch.config) == cudaSuccess;
  if (there) return clusters;
  cudaGetLastError();  // an answer, not an error
  return 0;
}

// Keeps that number for each device and size of a cluster, for one number of threads and bytes of a
// kernel. It also sets the kernel's attributes: call it before the launch.
template <auto kKernel>
int most_clusters(ClusterShape const& shape) {
  constexpr int kDevices = 64, kSizes = 17;
  static std::atomic<int> known[kDevices][kSizes] = {};  // one more than the answer
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kDevices) return 0;
  auto& answer = known[device][shape.blocks];
  if (answer == 0) answer = query_most_clusters(kKernel, shape) + 1;
  return answer - 1;
}

template <class Call>
cudaError_t launch_clusters(void (*kernel)(Call), ClusterShape const& shape, cudaStream_t stream,
                            Call const& call) {
  static_assert(sizeof(Call) <= kMostParameterBytes);
  ClusterLaunch const launch(shape, stream);
  return cudaLaunchKernelEx(&launch.config, kernel, call);
}

}  // namespace dynemb::cuda
