// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/distinct.cu: the distinct numbers of a batch of a tensor train.
#include "cuda/launch.h"
#include "cuda/tensor_train/distinct.cuh"

namespace dynemb::cuda {

size_t distinct_scratch_bytes(DistinctArgs const& args) { return distinct_bytes(args); }

cudaError_t distinct(DistinctArgs const& args, void* memory, cudaStream_t stream) {
  if (args.num_ids > 0) return run_distinct(args, memory, stream);
  auto const bytes = size_t(args.num_prefixes + 1) * sizeof(int32_t);
  DYNEMB_CUDA_TRY(cudaMemsetAsync(args.count, 0, sizeof(int32_t), stream));
  return cudaMemsetAsync(args.starts, 0, bytes, stream);
}

}  // namespace dynemb::cuda
