// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/hash_ids_module.h: what jde.hash_ids calls; in the CPU's module only.
#pragma once

#include <nanobind/nanobind.h>

namespace dynemb {

void add_hash_ids(nanobind::module_& m);

}  // namespace dynemb
