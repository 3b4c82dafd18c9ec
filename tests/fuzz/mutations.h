// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/mutations.h: calls as no program should make them.
#pragma once

#include "tests/fuzz/world.h"

namespace dynemb::fuzz {

// Gives the call arrays of its own, and changes a shape, a type, the number of arrays, an
// attribute, or what is updated in place. The call may still be one that a handler takes.
void mutate(Call& call, Random& random);

}  // namespace dynemb::fuzz
