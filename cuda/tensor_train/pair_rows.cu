// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/pair_rows.cu: rows that are products of two factors.
#include "cuda/launch.h"
#include "cuda/tensor_train/products.cuh"
#include "cuda/tensor_train/row_octets.cuh"
#include "cuda/tensor_train/staged_suffixes.cuh"

namespace dynemb::cuda {

size_t pair_rows_scratch_bytes(PairRowsArgs const& /*args*/) { return 0; }

cudaError_t pair_rows(PairRowsArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  auto const& shape = args.shape;
  if (shape.num_rows == 0 || shape.num_prefixes == 0) return cudaSuccess;
  int device = 0, most = 0;
  DYNEMB_CUDA_TRY(cudaGetDevice(&device));
  DYNEMB_CUDA_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  if (is_half(shape)) return staged_rows(numbers_of<BFloat16>(args), most, stream);
  auto const rows = numbers_of<float>(args);
  if (shape.num_suffixes > 0 && has_octets(shape)) {
    auto staged = false;
    DYNEMB_CUDA_TRY(staged_rows(rows, most, stream, &staged));
    return staged ? cudaSuccess : octet_rows(rows, stream);
  }
  ProductsCall const call{shape, rows.prefix, shape.m, shape.k, rows.suffix, rows.rows};
  return launch_products<false>(call, stream);
}

}  // namespace dynemb::cuda
