// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/tier.h"

#include <cstring>

#include "core/tiers/record.h"

namespace dynemb::fuzz {
namespace {

uint8_t const* row_in(Array const& array, int64_t rows, int64_t row) {
  return array.data<uint8_t>() +
         array.bytes() / static_cast<size_t>(rows) * static_cast<size_t>(row);
}

bool same_bytes(Array const& array, int64_t rows, int64_t row, uint8_t const* bytes) {
  auto const count = array.bytes() / static_cast<size_t>(rows);
  return memcmp(row_in(array, rows, row), bytes, count) == 0;
}

}  // namespace

Tier::Tier(Table& of, Random& random)
    : table(&of),
      sound(random.one_in(2)),
      frames(random.between(1, kMostFrames)),
      spill(random.of<int64_t>({1, 7, 200})),
      location(kS32, {of.slots()}),
      owners(kU32, {of.buckets, frames}),
      values(of.dtype, {first_spill() + spill, of.dim}),
      events(kU32, {of.counter_rows, kNumTierCounters, 2}),
      homes(kU32, {of.slots(), words()}),
      counters(of.counters.copy()) {
  for (auto const& state : of.states) {
    auto dims = state.dims;
    dims[0] = rows();
    states.emplace_back(state.dtype, dims);
    for (int64_t i = 0; i < states.back().count(); ++i) states.back().data<float>()[i] = float(i);
  }
  fill_floats(random, values);
  memset(events.memory.get(), 0, events.bytes());
  for (int64_t i = 0; i < homes.count(); ++i) homes.data<uint32_t>()[i] = uint32_t(i);
  sound ? settle(random) : damage(random);
}

Tier Tier::copy() const {
  auto other = *this;
  for (auto* const array : {&other.location, &other.owners, &other.values, &other.homes}) {
    *array = array->copy();
  }
  for (auto& state : other.states) state = state.copy();
  return other;
}

TableRef Tier::shape() const {
  TableRef shape{};
  shape.dim = static_cast<int32_t>(table->dim);
  shape.value_type = table->dtype == kF32 ? ValueType::kFloat32 : ValueType::kFloat16;
  shape.num_states = static_cast<int32_t>(table->states.size());
  for (size_t s = 0; s < table->states.size(); ++s) {
    auto const& dims = table->states[s].dims;
    shape.state_width[s] = dims.size() > 1 ? static_cast<int32_t>(dims[1]) : 1;
  }
  return shape;
}

int64_t Tier::words() const { return record_bytes_of(shape()) / 4; }

void Tier::settle(Random& random) {
  for (int64_t i = 0; i < location.count(); ++i) {
    auto const fresh = kFreshLocation + static_cast<uint32_t>(random.below(3));
    location.data<uint32_t>()[i] = random.one_in(5) ? fresh : kHomeLocation;
  }
  for (int64_t b = 0; b < table->buckets; ++b) {
    for (int64_t f = 0; f < frames; ++f) {
      auto const owner = static_cast<uint32_t>(random.below(kBucketCapacity));
      auto& of_owner = location.data<uint32_t>()[b * kBucketCapacity + owner];
      owners.data<uint32_t>()[b * frames + f] = owner | (random.one_in(2) ? kDirtyFrame : 0);
      if (of_owner == kHomeLocation) of_owner = static_cast<uint32_t>(f) + 1;
    }
  }
}

void Tier::damage(Random& random) {
  for (int64_t i = 0; i < location.count(); ++i) {
    auto const any = random.one_in(2) ? random.hostile() : random.below(frames + 2);
    location.data<int32_t>()[i] = static_cast<int32_t>(any);
  }
  for (int64_t i = 0; i < owners.count(); ++i) {
    owners.data<uint32_t>()[i] = static_cast<uint32_t>(random.bits());
  }
}

int64_t Tier::frame_at(int64_t slot, uint32_t named) const {
  if (named == 0 || named > static_cast<uint32_t>(frames)) return -1;
  auto const row = slot / kBucketCapacity * frames + int64_t{named} - 1;
  auto const owner = owner_word(row) & kOwnerMask;
  return owner == static_cast<uint32_t>(slot % kBucketCapacity) ? row : -1;
}

bool Tier::equals(int64_t row, Tier const& other, int64_t its) const {
  if (!same_bytes(values, rows(), row, row_in(other.values, other.rows(), its))) return false;
  for (size_t s = 0; s < states.size(); ++s) {
    if (!same_bytes(states[s], rows(), row, row_in(other.states[s], other.rows(), its)))
      return false;
  }
  return true;
}

bool Tier::equals_record(int64_t row, uint8_t const* record) const {
  if (!same_bytes(values, rows(), row, record)) return false;
  for (size_t s = 0; s < states.size(); ++s) {
    auto const* const state = record + state_offset(shape(), static_cast<int>(s));
    if (!same_bytes(states[s], rows(), row, state)) return false;
  }
  return true;
}

uint8_t* Tier::record(int64_t slot) const {
  return homes.data<uint8_t>() +
         homes.bytes() / static_cast<size_t>(slots()) * static_cast<size_t>(slot);
}

void Tier::add(Call& call, bool index, bool with_states, bool changes, bool with_events,
               bool counts) const {
  auto const next = [&](Array const& array) {
    changes ? call.aliased(array) : call.operands.push_back(array);
  };
  if (index) call.operands.push_back(table->index);
  counts ? call.aliased(counters) : call.operands.push_back(counters);
  next(location);
  next(owners);
  next(values);
  for (auto const& state : states) {
    if (with_states) next(state);
  }
  if (with_events) call.aliased(events);
  call.operands.push_back(homes);
}

TierCall begin_tier_call(World& world, Random& random, int64_t most) {
  TierCall begun;
  std::vector<Table*> tables;
  for (auto count = random.between(1, most); count > 0; --count) {
    tables.push_back(&world[static_cast<size_t>(random.below(static_cast<int64_t>(world.size())))]);
    begun.tiers.emplace_back(*tables.back(), random);
  }
  table_attributes(begun.call, tables);
  return begun;
}

}  // namespace dynemb::fuzz
