// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers.h: the handlers of this module's backend, by target name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace dynemb {

// The shapes that the scratch of a call depends on. export_batch passes the buckets of its range
// here, route the ids of each part.
struct CallShape {
  std::vector<int64_t> buckets;  // of each table
  std::vector<int32_t> dims;     // of each table
  std::vector<int64_t> ids;      // of each feature
};

struct Registration {
  char const* name;  // of the target
  XLA_FFI_Handler* handler;
  size_t (*scratch_bytes)(CallShape const& shape);
};

std::vector<Registration> registrations();

constexpr char const* operation_of(char const* target) { return target + sizeof("dynemb_") - 1; }

// Of the operation `operation`, "lookup"; 0 where it needs none.
size_t scratch_bytes(std::string const& operation, CallShape const& shape);

}  // namespace dynemb
