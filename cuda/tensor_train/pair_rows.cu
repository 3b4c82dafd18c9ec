// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/pair_rows.cu: rows that are products of two factors.
#include "cuda/launch.h"
#include "cuda/tensor_train/products.cuh"

namespace dynemb::cuda {

size_t pair_rows_scratch_bytes(PairRowsArgs const& /*args*/) { return 0; }

cudaError_t pair_rows(PairRowsArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  auto const& shape = args.shape;
  ProductsCall const call{shape, args.prefix, shape.m, shape.k, args.suffix, args.rows};
  return launch_products<false>(call, stream);
}

}  // namespace dynemb::cuda
