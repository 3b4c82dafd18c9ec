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
  if (shape.num_suffixes > 0 && has_octets(shape)) {
    OctetRowsCall const call{shape, args.prefix, args.suffix, args.rows};
    int device = 0, most = 0;
    DYNEMB_CUDA_TRY(cudaGetDevice(&device));
    DYNEMB_CUDA_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    StagedParts const parts(shape, most);
    return parts.parts > 0 ? staged_rows(call, parts, stream) : octet_rows(call, stream);
  }
  ProductsCall const call{shape, args.prefix, shape.m, shape.k, args.suffix, args.rows};
  return launch_products<false>(call, stream);
}

}  // namespace dynemb::cuda
