// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/backend.h: the only place where the handlers of the two platforms differ.
//
// A backend has a Context (a type that XLA can decode), kTraits, and for every operation of
// core/args.h a function `op(Context&, Args const&) -> ffi::Error`.
#pragma once

#ifdef DYNEMB_CUDA
#include "xla_ffi/backend_cuda.h"  // IWYU pragma: export
#else
#include "xla_ffi/backend_cpu.h"  // IWYU pragma: export
#endif
