// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/update_functor.cuh: what cuda/gradients/update_any.cu calls where the sums of
// gradients need no memory: rows are updated by the kernel that sums them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "core/args.h"

namespace dynemb::cuda {

// Whether a call has one optimizer, arrays of float32 and rows of no more columns than a warp has.
bool updates_in_sums(UpdateArgs const& args);

size_t update_functor_scratch_bytes(UpdateArgs const& args);

// Precondition: updates_in_sums(args).
cudaError_t update_functor(UpdateArgs const& args, void* memory, cudaStream_t stream);

// Makes the optimizers of all tables, after the update has been counted.
cudaError_t prepare_optimizers(UpdateArgs const& args, AnyOptimizer* optimizers,
                               cudaStream_t stream);

}  // namespace dynemb::cuda
