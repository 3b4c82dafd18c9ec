// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/tier_world.h: a tiered table in vectors, and beside it what each of its rows is. No
// call may change that, wherever it lets the row lie.
#pragma once

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "core/group.h"
#include "core/row.h"
#include "core/tiers/record.h"
#include "core/tiers/tier_args.h"
#include "tests/core/test_table.h"

namespace dynemb::testing {

struct Shape {
  int64_t buckets;
  int32_t frames;
  int32_t spill_rows;
  int32_t dim;
  ValueType type;
  std::vector<int32_t> states;  // widths
  ScorePolicy policy;
};

// Holds a row and its states as bytes. Of a row whose states are not written yet only the row
// counts.
struct Content {
  std::vector<char> row;
  std::vector<char> states;
  bool operator==(Content const&) const = default;
};

class World {
 public:
  explicit World(Shape const& shape)
      : shape(shape),
        owned_(shape.buckets, shape.dim, shape.policy, true),
        num_rows(shape.buckets * shape.frames + shape.spill_rows),
        num_slots(static_cast<int32_t>(shape.buckets * kBucketCapacity)),
        location(size_t(num_slots), kFreshLocation),
        owners(size_t(shape.buckets * shape.frames)),
        counters(kNumTierCounters) {
    table = owned_.ref;
    table.value_type = shape.type;
    table.num_states = static_cast<int32_t>(shape.states.size());
    table.initializer = {InitializerKind::kUniform, {-1.0f, 2.0f}};
    table.counters[kSeed] = 77;
    arrays_.resize(size_t(1 + table.num_states));
    for (int s = 0; s < table.num_states; ++s) {
      table.state_width[s] = shape.states[size_t(s)];
      table.state_initial[s] = 0.25f * static_cast<float>(s + 1);
      arrays_[size_t(s) + 1].resize(size_t(num_rows * table.state_width[s] * 4));
      table.states[s] = reinterpret_cast<float*>(arrays_[size_t(s) + 1].data());
    }
    arrays_[0].resize(size_t(num_rows * row_bytes_of(table)));
    table.values = arrays_[0].data();
    homes.resize(size_t(num_slots * record_bytes_of(table) / 16));
    for (int32_t slot = 0; slot < num_slots; ++slot) {
      if (random() % 8 != 0) store_key(slot);
    }
  }

  TierRef tier() {
    return {location.data(),        owners.data(),
            counters.data(),        reinterpret_cast<uint8_t const*>(homes.data()),
            record_bytes_of(table), shape.frames,
            shape.spill_rows};
  }

  uint64_t random() { return random_at(turn_++); }

  // What a lookup does that stores a new key.
  void store_key(int32_t slot) {
    *entry_at(table, slot) = {random(), score()};
    location[size_t(slot)] = kFreshLocation;
    first_.resize(size_t(num_slots));
    truth_.resize(size_t(num_slots));
    truth_[size_t(slot)] = first_[size_t(slot)] = first_content(slot);
  }

  void erase(int32_t slot) { *entry_at(table, slot) = {kEmptyKey, kEmptyScore}; }

  bool is_alive(int32_t slot) const { return *score_at(table, slot) != kEmptyScore; }

  uint64_t score() {
    auto const clock = 1 + random() % 9;
    return is_packed(shape.policy) ? pack_score(random() % 4, clock) : clock;
  }

  Content const& truth(int32_t slot) const { return truth_[size_t(slot)]; }

  // An update writes other numbers to a row of the arrays.
  void write(int64_t row, int32_t slot) {
    Content content;
    auto const put = [&](char* to, int64_t bytes, std::vector<char>* kept) {
      for (int64_t i = 0; i < bytes; ++i) {
        to[i] = static_cast<char>(random() % 50 + 1);  // no number with all bits set
        kept->push_back(to[i]);
      }
    };
    put(static_cast<char*>(table.values) + row * row_bytes_of(table), row_bytes_of(table),
        &content.row);
    for (int s = 0; s < table.num_states; ++s) {
      put(reinterpret_cast<char*>(state_at(table, s, row)), int64_t{4} * table.state_width[s],
          &content.states);
    }
    truth_[size_t(slot)] = content;
  }

  // Reads the content of a row in a table's arrays.
  static Content content_of_row(TableRef const& table, int64_t row) {
    Content content;
    auto const* const values = static_cast<char const*>(table.values) + row * row_bytes_of(table);
    content.row.assign(values, values + row_bytes_of(table));
    if (has_unwritten_states(table, row)) return content;
    for (int s = 0; s < table.num_states; ++s) {
      auto const* const state = reinterpret_cast<char const*>(state_at(table, s, row));
      content.states.insert(content.states.end(), state, state + 4 * table.state_width[s]);
    }
    return content;
  }

  Content content_of_record(int32_t slot) const {
    return content_of_record(reinterpret_cast<char const*>(homes.data()) +
                             slot * record_bytes_of(table));
  }

  Content content_of_record(char const* record) const {
    Content content;
    content.row.assign(record, record + row_bytes_of(table));
    float first;
    std::memcpy(&first, record + (table.num_states > 0 ? state_offset(table, 0) : 0), 4);
    if (writes_states_late(table) && first == kUnwritten) return content;
    for (int s = 0; s < table.num_states; ++s) {
      auto const* const state = record + state_offset(table, s);
      content.states.insert(content.states.end(), state, state + 4 * table.state_width[s]);
    }
    return content;
  }

  // Wherever the row of a slot lies.
  bool has_truth(int32_t slot) {
    auto const row = cached_row(tier(), slot);
    if (row >= 0) return content_of_row(table, row) == truth(slot);
    if (is_fresh(tier(), slot)) return first_[size_t(slot)] == truth(slot);
    return content_of_record(slot) == truth(slot);
  }

  void check_all() {
    for (int32_t slot = 0; slot < num_slots; ++slot) CHECK(!is_alive(slot) || has_truth(slot));
  }

  // Slots of a batch: of few buckets, so that they need more frames than there are; some twice,
  // some of nothing.
  std::vector<int32_t> batch(size_t count) {
    std::vector<int32_t> slots;
    auto const begin = random() % uint64_t(num_slots), range = 1 + random() % uint64_t(num_slots);
    while (slots.size() < count) {
      auto const kind = random() % 16;
      if (kind == 0) {
        slots.push_back(-1 - static_cast<int32_t>(random() % 3));
      } else if (kind == 1) {
        slots.push_back(num_slots + static_cast<int32_t>(random() % 1000));
      } else if (kind < 4 && !slots.empty()) {
        slots.push_back(slots[random() % slots.size()]);
      } else {
        slots.push_back(static_cast<int32_t>((begin + random() % range) % uint64_t(num_slots)));
      }
    }
    return slots;
  }

  // The arrays of rows and states; they stay where they are.
  std::vector<std::vector<char>> const& arrays() const { return arrays_; }
  void set_arrays(std::vector<std::vector<char>> const& arrays) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      std::copy(arrays[i].begin(), arrays[i].end(), arrays_[i].begin());
    }
  }

  int64_t first_spill() const { return shape.buckets * shape.frames; }

  Shape const shape;

 private:
  TestTable owned_;

 public:
  int64_t const num_rows;
  int32_t const num_slots;
  TableRef table;
  std::vector<uint32_t> location, owners;
  std::vector<uint64_t> counters;
  std::set<int32_t> new_rows;  // first promoted by the latest promotion that had them
  struct alignas(16) Piece {
    char bytes[16];
  };
  std::vector<Piece> homes;

 private:
  Content first_content(int32_t slot) const {
    auto one = table;
    std::vector<std::vector<char>> arrays;
    arrays.emplace_back(size_t(row_bytes_of(table)));
    one.values = arrays[0].data();
    for (int s = 0; s < table.num_states; ++s) {
      arrays.emplace_back(size_t(4 * table.state_width[s]));
      one.states[s] = reinterpret_cast<float*>(arrays.back().data());
    }
    initialize_slot(ScalarGroup{}, one, *key_at(table, slot), 0);
    return content_of_row(one, 0);
  }

  std::vector<std::vector<char>> arrays_;
  std::vector<Content> first_, truth_;  // of each key when it was stored, and now
  uint64_t turn_ = 0;
};

}  // namespace dynemb::testing
