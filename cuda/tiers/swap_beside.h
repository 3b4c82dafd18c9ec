// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/swap_beside.h: swap_rows for a stream beside which others work.
#pragma once

#include "core/tiers/tier_args.h"
#include "cuda/grid/host.h"

namespace dynemb::cuda {

cudaError_t swap_rows_beside(WriteBackArgs const& args, cudaStream_t stream);

}  // namespace dynemb::cuda
