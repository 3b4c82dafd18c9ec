// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/swap_beside.cu: swap_rows on a stream of its own.
#include <map>
#include <mutex>

#include "cuda/grid/host.h"
#include "cuda/launch.h"
#include "cuda/tiers/swap_beside.h"

namespace dynemb::cuda {
namespace {

// What a device needs to work beside XLA's stream. Its blocks go first: they are few, and the bus
// would stand still while they wait for those of a matrix product.
struct Side {
  cudaStream_t stream = nullptr;
  cudaEvent_t ended = nullptr;
  // Where XLA's stream was when a swap began, by the homes of its first table.
  std::map<void const*, cudaEvent_t> begun;

  cudaError_t make() {
    if (stream != nullptr) return cudaSuccess;
    int least = 0, greatest = 0;
    DYNEMB_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    DYNEMB_CUDA_TRY(cudaEventCreateWithFlags(&ended, cudaEventDisableTiming));
    return cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
  }

  cudaError_t begin(void const* homes, cudaStream_t from) {
    auto& event = begun[homes];
    if (event == nullptr) {
      DYNEMB_CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    return cudaEventRecord(event, from);
  }
};

std::mutex& mutex() {
  static std::mutex one;
  return one;
}

// Of the current device; under the mutex.
cudaError_t side_of_device(Side** side) {
  static std::map<int, Side> sides;
  int device = 0;
  DYNEMB_CUDA_TRY(cudaGetDevice(&device));
  *side = &sides[device];
  return (*side)->make();
}

}  // namespace

size_t begin_swap_scratch_bytes(WriteBackArgs const& /*args*/) { return 0; }
size_t end_swap_scratch_bytes(WriteBackArgs const& /*args*/) { return 0; }

cudaError_t begin_swap(WriteBackArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  std::lock_guard<std::mutex> const lock(mutex());
  Side* side = nullptr;
  DYNEMB_CUDA_TRY(side_of_device(&side));
  return side->begin(args.tables[0].homes, stream);
}

// The copies are launched here, where the host is far ahead of the device, and wait only for the
// event of the begin. A program that fails between the two calls has launched nothing, so nothing
// writes to arrays that XLA frees then.
cudaError_t end_swap(WriteBackArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  std::lock_guard<std::mutex> const lock(mutex());
  Side* side = nullptr;
  DYNEMB_CUDA_TRY(side_of_device(&side));
  auto const begun = side->begun.find(args.tables[0].homes);
  if (begun == side->begun.end()) return cudaErrorInvalidValue;  // the handler has compared
  DYNEMB_CUDA_TRY(cudaStreamWaitEvent(side->stream, begun->second, 0));
  DYNEMB_CUDA_TRY(swap_rows_beside(args, side->stream));
  DYNEMB_CUDA_TRY(cudaEventRecord(side->ended, side->stream));
  return cudaStreamWaitEvent(stream, side->ended, 0);
}

}  // namespace dynemb::cuda
