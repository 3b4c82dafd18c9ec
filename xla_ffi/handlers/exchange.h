// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/exchange.h: exchanges between GPUs of one host; in the CUDA module only. They
// are no operations of core/args.h: on a CPU, XLA's collectives do the same.
#pragma once

#include "xla/ffi/api/ffi.h"
#include "xla_ffi/backend.h"
#include "xla_ffi/buffers.h"
#include "xla_ffi/handlers/operation.h"

namespace dynemb {

XLA_FFI_Error* exchange(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* place_rows(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* place_stored_rows(XLA_FFI_CallFrame* frame);

#ifdef DYNEMB_CUDA
// What all of them bind first: the GPUs, in groups of `shards` side by side.
inline auto bind_peers() { return bind().Attr<IntAttr>("devices").Attr<int64_t>("shards"); }

// Whether the ids are those of groups, side by side.
bool are_groups(IntAttr devices, int64_t shards);

// Says what became of an exchange.
ffi::Error error_of_peers(char const* name, cudaError_t error);
#endif

}  // namespace dynemb
