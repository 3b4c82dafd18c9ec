// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/tier_calls.h: random calls about tiered tables; places and owners may be anything.
#pragma once

#include "tests/fuzz/calls.h"

namespace dynemb::fuzz {

Call make_promote(World& world, Random& random);
Call make_fetch(World& world, Random& random);
Call make_write_back(World& world, Random& random);
Call make_swap_rows(World& world, Random& random);
Call make_settle(World& world, Random& random);
Call make_tier_rows(World& world, Random& random);
Call make_tier_gather(World& world, Random& random);

}  // namespace dynemb::fuzz
