// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/log_module.h: what jde.stores.Log calls; in the CPU's module only.
#pragma once

#include <nanobind/nanobind.h>

namespace dynemb {

void add_log(nanobind::module_& m);

}  // namespace dynemb
