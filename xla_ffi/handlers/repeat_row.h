// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/repeat_row.h: the arrays of a new table; in the CPU's module only. It is no
// operation of both platforms, since a GPU has no pages to choose.
#pragma once

#include "xla/ffi/api/ffi.h"

namespace dynemb {

// in: a row   out: rows that are equal to it
XLA_FFI_Error* repeat_row(XLA_FFI_CallFrame* frame);

}  // namespace dynemb
