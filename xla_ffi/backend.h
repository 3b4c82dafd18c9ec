// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/backend.h: the only place where the handlers of the two platforms differ.
//
// A backend has a Context (a type that XLA can decode), kTraits, and for every operation of
// core/args.h a function `op(Context&, Args const&, Scratch) -> ffi::Error` and
// `op_scratch_bytes(Args const&) -> size_t`, which looks at counts and shapes only.
//
// Scratch is a result of the call and not XLA's ScratchAllocator: that one takes the memory back
// when the handler returns, while a recorded graph goes on writing to it at every replay.
#pragma once

#ifdef DYNEMB_CUDA
#include "xla_ffi/backend_cuda.h"  // IWYU pragma: export
#else
#include "xla_ffi/backend_cpu.h"  // IWYU pragma: export
#endif
