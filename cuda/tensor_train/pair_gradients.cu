// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/pair_gradients.cu: gradients of both factors of rows, without atomics.
#include "cuda/grid/host.h"
#include "cuda/launch.h"
#include "cuda/tensor_train/half_gradients.cuh"
#include "cuda/tensor_train/prefix_gradients.cuh"
#include "cuda/tensor_train/suffix_gradients.cuh"

namespace dynemb::cuda {

size_t pair_gradients_scratch_bytes(PairGradientsArgs const& args) {
  return suffix_gradients_scratch_bytes(args.shape);
}

cudaError_t pair_gradients(PairGradientsArgs const& args, void* scratch, cudaStream_t stream) {
  auto const& shape = args.shape;
  // Gradients of prefixes last: what is read next is in the second-level cache then.
  if (is_half(shape)) {
    auto const half = numbers_of<BFloat16>(args);
    if (shape.num_suffixes > 0) {
      DYNEMB_CUDA_TRY(suffix_sums(half, SumParts(shape), scratch, stream));
    }
    return shape.num_prefixes > 0 ? half_prefix_gradients(half, stream) : cudaSuccess;
  }
  auto const whole = numbers_of<float>(args);
  if (shape.num_suffixes > 0) DYNEMB_CUDA_TRY(suffix_gradients(whole, scratch, stream));
  return prefix_gradients(whole, stream);
}

}  // namespace dynemb::cuda
