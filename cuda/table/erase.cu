// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/table/erase.cu: keys are erased from a table, in two phases: find all slots, then empty
// them.
#include "core/erase.h"
#include "cuda/grid/host.h"
#include "cuda/lookup/probe.cuh"

namespace dynemb::cuda {
namespace {

__device__ __forceinline__ int64_t thread_index() {
  return int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

__global__ void __launch_bounds__(kThreads)
    find_to_erase_kernel(__grid_constant__ EraseArgs const args) {
  auto const i = thread_index();
  if (i < args.num_ids) {
    args.slots[i] = find_slot(args.table, load_key(args.ids, args.id_type, i));
  }
}

__global__ void __launch_bounds__(kThreads) erase_kernel(__grid_constant__ EraseArgs const args) {
  auto const i = thread_index();
  auto const erased = i < args.num_ids && erase_slot(args.table, args.removals, args.slots[i]);
  auto const count = static_cast<uint64_t>(__syncthreads_count(erased));
  if (threadIdx.x == 0) count_left(args.table, kErased, count);
}

}  // namespace

size_t erase_scratch_bytes(EraseArgs const& /*args*/) { return 0; }

cudaError_t erase(EraseArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  auto const blocks = static_cast<unsigned>(std::max<int64_t>(1, ceil_div(args.num_ids, kThreads)));
  find_to_erase_kernel<<<blocks, kThreads, 0, stream>>>(args);
  DYNEMB_CUDA_TRY(cudaGetLastError());
  erase_kernel<<<blocks, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace dynemb::cuda
