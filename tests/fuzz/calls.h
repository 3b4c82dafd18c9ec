// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/calls.h: a random call of each target, as it should be; its data may be hostile.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/world.h"

namespace dynemb::fuzz {

using World = std::vector<Table>;

// Each in the file of what it is about: lookups, gradients, rows, routes,
// tensor_trains, tiers.
enum class Looks { kTrains, kReads, kReadsPacked };

Call make_lookup(World& world, Random& random, Looks looks);
Call make_update(World& world, Random& random);
Call make_update_any(World& world, Random& random);
Call make_reduce(World& world, Random& random);
Call make_sum_rows(World& world, Random& random);
Call make_distinct(World& world, Random& random);
Call make_gather(World& world, Random& random);
Call make_scatter(World& world, Random& random);
Call make_erase(World& world, Random& random);
Call make_rule(World& world, Random& random, bool erases);
Call make_decay(World& world, Random& random);
Call make_export(World& world, Random& random);
Call make_route(World& world, Random& random);
Call make_ordered_route(World& world, Random& random);
Call make_offsets(World& world, Random& random);
Call make_offsets_of_features(World& world, Random& random);
Call make_add_to_counters(World& world, Random& random);
Call make_pair_rows(World& world, Random& random);
Call make_pair_gradients(World& world, Random& random);
Call make_departing_lookup(World& world, Random& random);
Call make_promote(World& world, Random& random);
Call make_depart(World& world, Random& random);
Call make_fetch(World& world, Random& random);
Call make_write_back(World& world, Random& random);
Call make_swap_rows(World& world, Random& random);
Call make_begin_swap(World& world, Random& random);
Call make_run_swap(World& world, Random& random);
Call make_end_swap(World& world, Random& random);  // of one that has begun
Call make_settle(World& world, Random& random);
Call make_tier_rows(World& world, Random& random);
Call make_tier_gather(World& world, Random& random);

std::vector<std::string> all_targets();  // without their prefix
Call make_call(std::string const& op, World& world, Random& random);

}  // namespace dynemb::fuzz
