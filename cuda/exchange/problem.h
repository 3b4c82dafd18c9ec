// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/exchange/problem.h: why GPUs cannot read each other's memory, in words.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace dynemb::cuda {

// Returns what failed and why; empty if nothing did.
inline std::string problem_of(cudaError_t error, char const* what) {
  return error == cudaSuccess ? "" : std::string(what) + ": " + cudaGetErrorString(error);
}

}  // namespace dynemb::cuda
