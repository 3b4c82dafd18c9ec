// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/depart_test.cc: rows that were evicted, by the kernels and by a CPU, beside what
// each of them was: in a frame, at home, or fresh.
#include "cuda/tiers/depart.cu"

#include <cstdio>

#include "cpu/table_ops.h"
#include "cpu/tiers/move_row.h"
#include "tests/cuda/tier_world.h"

namespace {

using namespace dynemb;
using dynemb::testing::Content;
using dynemb::testing::random_at;
using dynemb::testing::Shape;
using dynemb::testing::ThreadsPool;
using dynemb::testing::World;

struct Ring {
  std::vector<Departure> notes;  // behind the header
  std::vector<World::Piece> records;
  int64_t record_bytes;

  Ring(World const& world, int64_t room)
      : notes(size_t(room + 1)),
        records(size_t(room * record_bytes_of(world.table) / 16)),
        record_bytes(record_bytes_of(world.table)) {}

  uint32_t* words() { return reinterpret_cast<uint32_t*>(notes.data()); }
  char* record(size_t i) { return records[i * size_t(record_bytes) / 16].bytes; }

  DepartArgs args(World& world) {
    auto table = world.table;
    table.index = nullptr;
    auto const room = static_cast<uint32_t>(notes.size() - 1);
    return {table, world.tier(), {words(), room}, reinterpret_cast<uint8_t*>(records.data())};
  }
};

using Depart = void (*)(World&, Ring&);

void by_kernels(World& world, Ring& ring) {
  CHECK(cuda::depart(ring.args(world), nullptr, nullptr) == cudaSuccess);
}

void by_cpu(World& world, Ring& ring) {
  ThreadsPool threads(2);
  cpu::depart(ring.args(world), threads.pool);
}

// Rows in frames and at home with numbers of their own; the others are fresh.
void settle(World& world) {
  for (int32_t slot = 0; slot < world.num_slots; ++slot) {
    auto const frame = static_cast<int32_t>(world.random() % uint64_t(2 * world.shape.frames));
    auto const row = slot / kBucketCapacity * world.shape.frames + frame;
    if (frame < world.shape.frames && world.random() % 4 == 0) {
      auto const before = owner_of(world.tier(), slot / kBucketCapacity, frame);
      if (before >= 0) continue;
      world.location[size_t(slot)] = static_cast<uint32_t>(frame) + 1;
      world.owners[size_t(row)] = static_cast<uint32_t>(slot % kBucketCapacity) | kDirtyFrame;
      world.write(row, slot);
    } else if (world.random() % 2 == 0) {
      world.location[size_t(slot)] = kHomeLocation;
      world.write(world.first_spill(), slot);
      auto* const homes = reinterpret_cast<uint8_t*>(world.homes.data());
      cpu::record_from_row(world.table, world.first_spill(),
                           homes + slot * record_bytes_of(world.table));
    }
  }
  world.check_all();
}

struct Left {
  size_t number;
  Content content;
};

// New keys evict some rows, as in a lookup.
std::vector<Left> evict(World& world, Ring& ring, size_t rows) {
  std::vector<Left> left;
  std::set<int32_t> slots;
  while (left.size() < rows) {
    auto const slot = static_cast<int32_t>(world.random() % uint64_t(world.num_slots));
    if (!world.is_alive(slot) || !slots.insert(slot).second) continue;
    auto const number = ring.words()[kRingCount]++;
    auto const& entry = *entry_at(world.table, slot);
    *departure_at(ring.words(), number) = {
        entry.key, entry.score, slot, world.location[size_t(slot)], {}};
    left.push_back({number, world.truth(slot)});
    world.store_key(slot);
  }
  return left;
}

void walk(Shape const& shape, Depart depart) {
  World world(shape);
  Ring ring(world, 200);
  settle(world);
  auto const departed = [&] { return world.counters[kTierDeparted]; };
  std::vector<Left> all;
  for (size_t const rows : {60, 0, 1, 70}) {
    auto const before = departed();
    for (auto const& one : evict(world, ring, rows)) all.push_back(one);
    ring.words()[kRingRefused] = 3;
    depart(world, ring);
    for (auto const& [number, content] : all) {
      CHECK(world.content_of_record(ring.record(number)) == content);
    }
    CHECK(ring.words()[kRingCopied] == all.size() && ring.words()[kRingRefused] == 0);
    CHECK(departed() - before == rows);
    world.check_all();
  }
  CHECK(world.counters[kTierRingFull] == 12);
}

// Whatever a ring says, its header is put right and no other memory is used.
void run_on_rubbish(Shape const& shape, Depart depart, uint64_t seed) {
  World world(shape);
  Ring ring(world, 50);
  auto const any = [&] {
    auto const random = random_at(seed++);
    return static_cast<uint32_t>(random % 3 == 0 ? random >> 8 : (random >> 8) % 300);
  };
  for (int i = 0; i < 20; ++i) {
    for (auto& owner : world.owners) owner = any();
    for (size_t word = 0; word < 8 * ring.notes.size(); ++word) ring.words()[word] = any();
    auto const count = std::min(ring.words()[kRingCount], 50u);
    depart(world, ring);
    CHECK(ring.words()[kRingCopied] == count && ring.words()[kRingRefused] == 0);
  }
}

}  // namespace

int main() {
  constexpr auto kFloat = ValueType::kFloat32, kHalf = ValueType::kBFloat16;
  std::vector<Shape> const shapes = {
      {3, 4, 50, 8, kFloat, {}, ScorePolicy::kStep},
      {70, 8, 300, 6, kFloat, {6, 6}, ScorePolicy::kLfu},
      {9, 64, 7, 5, kHalf, {1}, ScorePolicy::kStep},
      {5, 33, 100, 132, kFloat, {132, 132}, ScorePolicy::kStep},
      {4, 5, 40, 3, kFloat, {3, 1, 3, 1}, ScorePolicy::kStep},
  };
  for (auto const& shape : shapes) {
    for (auto const depart : {by_kernels, by_cpu}) {
      walk(shape, depart);
      run_on_rubbish(shape, depart, static_cast<uint64_t>(shape.dim));
    }
  }
  std::puts("depart: ok");
}
