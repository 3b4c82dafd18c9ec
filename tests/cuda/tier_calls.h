// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/tier_calls.h: calls that move rows of a tiered table, each of three tables at once.
#pragma once

#include <vector>

#include "cuda/tiers/fetch.cu"
#include "cuda/tiers/promote.cu"
#include "cuda/tiers/write_back.cu"
#include "tests/cuda/scratch_memory.h"
#include "tests/cuda/tier_world.h"

namespace dynemb::testing {

inline std::vector<int32_t> spill_numbers(World& world) {
  std::vector<int32_t> rows(size_t(world.shape.spill_rows));
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<int32_t>(world.first_spill() + static_cast<int64_t>(i));
  }
  return rows;
}

// Lists of what moves between the rows of a table and its homes.
struct Lists {
  std::vector<int32_t> slots, rows, arriving, into;
  std::vector<int32_t> counts;
};

// Every call is about three tables: that of a world is the second. The first one has ids of its
// own, and the last one none.
struct Neighbours {
  World before{{11, 3, 9, 6, ValueType::kFloat32, {1, 6}, ScorePolicy::kStep}};
  World after{{2, 2, 1, 4, ValueType::kFloat32, {}, ScorePolicy::kStep}};
  Lists of_before, of_after{{}, {}, {}, {}, {0, 0}};
};

inline Neighbours& neighbours() {
  static Neighbours both;
  return both;
}

// Often empty: then a call may have nothing to do.
inline std::vector<int32_t> batch_of_before(World& world) {
  auto const most = world.random() % 2 == 0 ? 1 : 100;
  return neighbours().before.batch(world.random() % most);
}

// Calls use(table of the call, its world, its lists), the second with those given.
template <class Args, class Use>
void for_three(Args& args, World& world, Lists& lists, Use const& use) {
  auto& others = neighbours();
  args.num_tables = 3;
  use(args.tables[0], others.before, others.of_before);
  use(args.tables[1], world, lists);
  use(args.tables[2], others.after, others.of_after);
}

inline WriteBackTable write_back_table(World& world, Lists const& lists) {
  auto table = world.table;
  table.index = nullptr;
  return {table,
          world.num_rows,
          reinterpret_cast<uint8_t*>(world.homes.data()),
          world.num_slots,
          record_bytes_of(world.table),
          lists.counts.data(),
          static_cast<int64_t>(lists.slots.size()),
          lists.slots.data(),
          lists.rows.data(),
          static_cast<int64_t>(lists.arriving.size()),
          lists.arriving.data(),
          lists.into.data()};
}

// With `swaps` there are lists that arrive, too.
inline void write_back(World& world, Lists& lists, bool swaps) {
  WriteBackArgs args;
  for_three(args, world, lists,
            [](WriteBackTable& one, World& of, Lists& own) { one = write_back_table(of, own); });
  if (!swaps) {
    CHECK(cuda::write_back(args, nullptr, nullptr) == cudaSuccess);
    neighbours().before.check_all();
    return;
  }
  // As if the call were handed copies of the arrays, sometimes: what it brings there is lost.
  auto const lost = world.random() % 3 == 0;
  auto const kept = world.arrays();  // a copy
  CHECK(cuda::swap_rows(args, nullptr, nullptr) == cudaSuccess);
  if (lost) world.set_arrays(kept);
  SettleArgs settle;
  for_three(settle, world, lists, [](SettleTable& one, World& of, Lists& own) {
    auto table = of.table;
    table.index = nullptr;
    one = {table,
           of.tier(),
           of.num_rows,
           own.counts.data(),
           static_cast<int64_t>(own.arriving.size()),
           own.arriving.data(),
           own.into.data()};
  });
  CHECK(cuda::settle(settle, nullptr, nullptr) == cudaSuccess);
  neighbours().before.check_all();
}

inline Lists promote(World& world, std::vector<int32_t> const& slots, Promotion purpose) {
  auto const of_before = batch_of_before(world);
  std::vector<int32_t> const none;
  Lists result;
  PromoteArgs args;
  for_three(args, world, result, [&](PromoteTable& one, World& of, Lists& own) {
    auto const& ids = &of == &world ? slots : &of == &neighbours().after ? none : of_before;
    std::vector<int32_t> const list(ids.size(), 7);
    own = {list, list, list, list, {7, 7}};
    one = {of.table,        of.tier(),        purpose,         static_cast<int64_t>(ids.size()),
           ids.data(),      own.slots.data(), own.rows.data(), own.arriving.data(),
           own.into.data(), own.counts.data()};
  });
  ScratchMemory const scratch(cuda::promote_scratch_bytes(args));
  CHECK(cuda::promote(args, scratch.first(), nullptr) == cudaSuccess);
  return result;
}

struct Fetched {
  Lists lists;
  std::vector<int32_t> places;
};

inline Fetched fetch(World& world, std::vector<int32_t> const& slots, std::vector<Key> const* keys,
                     int32_t round) {
  auto const of_before = batch_of_before(world);
  std::vector<int32_t> const none;
  std::vector<int32_t> places_of_others(of_before.size());
  Fetched result{{}, std::vector<int32_t>(slots.size(), 99)};
  std::vector<Key> keys_of_others(of_before.size());
  for (size_t i = 0; i < of_before.size(); ++i) {
    auto& other = neighbours().before;
    auto const exists = of_before[i] >= 0 && of_before[i] < other.num_slots;
    if (exists) keys_of_others[i] = *key_at(other.table, of_before[i]);
  }
  FetchArgs args;
  for_three(args, world, result.lists, [&](FetchTable& one, World& of, Lists& own) {
    auto const is_it = &of == &world;
    auto const& ids = is_it ? slots : &of == &neighbours().after ? none : of_before;
    auto const* own_keys = keys == nullptr ? nullptr : is_it ? keys->data() : keys_of_others.data();
    own = {
        std::vector<int32_t>(size_t(of.shape.spill_rows), 99), spill_numbers(of), {}, {}, {9, 9}};
    one = {of.table,
           of.tier(),
           static_cast<int64_t>(ids.size()),
           ids.data(),
           own_keys,
           &round,
           is_it ? result.places.data() : places_of_others.data(),
           own.slots.data(),
           own.counts.data()};
  });
  ScratchMemory const scratch(cuda::fetch_scratch_bytes(args));
  CHECK(cuda::fetch(args, scratch.first(), nullptr) == cudaSuccess);
  return result;
}

}  // namespace dynemb::testing
