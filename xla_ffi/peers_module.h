// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/peers_module.h: how Python makes GPUs of one host read each other's memory; in the CUDA
// module only.
#pragma once

#include <nanobind/nanobind.h>

namespace dynemb {

void add_peers(nanobind::module_& m);

}  // namespace dynemb
