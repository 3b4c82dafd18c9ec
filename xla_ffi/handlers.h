// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers.h: the handlers of this module's backend, by target name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace dynemb {

struct Registration {
  char const* name;
  XLA_FFI_Handler* handler;
};

std::vector<Registration> registrations();

// The shapes that the scratch of a call depends on. For export_batch: the buckets of the range; for
// route: the ids of each part.
struct CallShape {
  std::vector<int64_t> buckets;  // of each table
  std::vector<int32_t> dims;     // of each table
  std::vector<int64_t> ids;      // of each feature
};

size_t scratch_bytes(std::string const& op, CallShape const& shape);

}  // namespace dynemb
