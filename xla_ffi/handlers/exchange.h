// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/exchange.h: an all_to_all between GPUs of one process; in the CUDA module only.
// It is no operation of core/args.h: on a CPU, XLA's collectives do the same.
#pragma once

#include <string>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace dynemb {

XLA_FFI_Error* exchange(XLA_FFI_CallFrame* frame);

// Prepares a group of GPUs, by ordinal; returns why they cannot read each other's memory.
std::string prepare_peers(std::vector<int> const& devices);

}  // namespace dynemb
