// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/pair_gradients.cu: gradients of both factors of rows, without atomics.
#include "cuda/grid/host.h"
#include "cuda/launch.h"
#include "cuda/tensor_train/prefix_gradients.cuh"
#include "cuda/tensor_train/suffix_gradients.cuh"

namespace dynemb::cuda {

size_t pair_gradients_scratch_bytes(PairGradientsArgs const& args) {
  return suffix_gradients_scratch_bytes(args);
}

cudaError_t pair_gradients(PairGradientsArgs const& args, void* scratch, cudaStream_t stream) {
  DYNEMB_CUDA_TRY(prefix_gradients(args, stream));
  return args.shape.num_suffixes > 0 ? suffix_gradients(args, scratch, stream) : cudaSuccess;
}

}  // namespace dynemb::cuda
