// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers.h: the handlers of this module's backend, by target name.
#pragma once

#include <vector>

#include "xla/ffi/api/ffi.h"

namespace dynemb {

struct Registration {
  char const* name;
  XLA_FFI_Handler* handler;
};

std::vector<Registration> registrations();

}  // namespace dynemb
