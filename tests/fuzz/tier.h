// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/tier.h: the arrays of a random tiered table, and what stands in them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/table_ref.h"
#include "core/tiers/tier_ref.h"
#include "tests/fuzz/data.h"

namespace dynemb::fuzz {

// Holds the arrays of a tier over the index of a table of the world. Where `sound`, places and
// owners agree; else they are any numbers.
struct Tier {
  Table* table;
  bool sound;
  int64_t frames, spill;
  Array location, owners, values, events, homes, counters;
  std::vector<Array> states;

  Tier(Table& of, Random& random);

  // The same numbers in memory of its own: what a call has not changed.
  Tier copy() const;

  int64_t slots() const { return location.count(); }
  int64_t first_spill() const { return table->buckets * frames; }
  int64_t rows() const { return values.dims[0]; }
  bool has(int64_t slot) const { return slot >= 0 && slot < slots(); }
  bool has_row(int64_t row) const { return row >= 0 && row < rows(); }
  int64_t words() const;
  TableRef shape() const;

  uint32_t location_of(int64_t slot) const { return location.data<uint32_t>()[slot]; }
  uint32_t owner_word(int64_t row) const { return owners.data<uint32_t>()[row]; }
  bool is_fresh(int64_t slot) const { return is_fresh_location(location_of(slot)); }
  uint64_t event(TierCounter which) const { return events.data<uint64_t>()[which]; }

  // Returns the row of the frame that a location names and that names the slot, or -1.
  int64_t frame_at(int64_t slot, uint32_t named) const;
  int64_t frame_of(int64_t slot) const { return frame_at(slot, location_of(slot)); }

  // Are a row and its states those of a row of another tier of this shape?
  bool equals(int64_t row, Tier const& other, int64_t its) const;
  // Are they those of a record?
  bool equals_record(int64_t row, uint8_t const* record) const;
  uint8_t* record(int64_t slot) const;

  // As the handlers take them.
  void add(Call& call, bool index, bool with_states, bool changes, bool with_events,
           bool counts = false) const;

 private:
  void settle(Random& random);
  void damage(Random& random);
};

struct TierCall {
  Call call;
  std::vector<Tier> tiers;
};

// Begins a call about some tables, up to `most` of them.
TierCall begin_tier_call(World& world, Random& random, int64_t most = 3);

// Adds to what is checked after a call.
template <class Check>
void check_later(Call& call, Check const& check) {
  call.check = [before = call.check, check] {
    if (before) before();
    check();
  };
}

// Holds a list of slots and one of rows; a handler receives how many of them count.
struct RowList {
  Array slots, rows;

  int32_t slot(int64_t i) const { return slots.data<int32_t>()[i]; }
  int32_t row(int64_t i) const { return rows.data<int32_t>()[i]; }
};

}  // namespace dynemb::fuzz
