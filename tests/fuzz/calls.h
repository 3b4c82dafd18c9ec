// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/calls.h: a random call of each target, as it should be; its data may be hostile.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/world.h"

namespace dynemb::fuzz {

using World = std::vector<Table>;

std::vector<std::string> all_targets();  // without their prefix
Call make_call(std::string const& op, World& world, Random& random);

}  // namespace dynemb::fuzz
