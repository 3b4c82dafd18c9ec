// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/swap_beside.h: begins to move records of tiered tables, and waits until they
// have moved.
#pragma once

#include "xla/ffi/api/ffi.h"

namespace dynemb {

XLA_FFI_Error* begin_swap(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* end_swap(XLA_FFI_CallFrame* frame);
#ifndef DYNEMB_CUDA
XLA_FFI_Error* run_swap(XLA_FFI_CallFrame* frame);
#endif

}  // namespace dynemb
