// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/table/counters.cu: numbers that a program has found are added to the counters of tables, in
// one launch for all of them.
#include "core/args.h"
#include "core/atomic.h"
#include "cuda/grid/host.h"
#include "cuda/launch.h"

namespace dynemb::cuda {
namespace {

__global__ void __launch_bounds__(kMaxFeatures)
    counters_kernel(__grid_constant__ AddToCountersArgs const args) {
  auto const i = static_cast<int32_t>(threadIdx.x);
  if (i >= args.num_additions) return;
  auto const& addition = args.additions[i];
  auto const number = *addition.number;
  if (number != 0) fetch_add(addition.counter, uint64_t{number});
}

}  // namespace

size_t add_to_counters_scratch_bytes(AddToCountersArgs const& /*args*/) { return 0; }

cudaError_t add_to_counters(AddToCountersArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  if (args.num_additions == 0) return cudaSuccess;
  counters_kernel<<<1, kMaxFeatures, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace dynemb::cuda
