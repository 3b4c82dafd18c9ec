// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tiers/move_row.h: one row with its states, between a home record, the arrays in device memory
// and its initial values.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/group.h"
#include "core/row.h"
#include "core/tiers/record.h"
#include "core/tiers/tier_ref.h"
#include "cpu/loops/row_ops.h"

namespace dynemb::cpu {

inline uint8_t* row_bytes_at(TableRef const& table, int64_t row) {
  return static_cast<uint8_t*>(table.values) + row * row_bytes_of(table);
}

inline size_t state_bytes(TableRef const& table, int s) {
  return size_t{4} * size_t(table.state_width[s]);
}

inline void row_from_record(TableRef const& table, uint8_t const* record, int64_t row) {
  memcpy(row_bytes_at(table, row), record, size_t(row_bytes_of(table)));
  for (int s = 0; s < table.num_states; ++s) {
    memcpy(state_at(table, s, row), record + state_offset(table, s), state_bytes(table, s));
  }
}

inline void record_from_row(TableRef const& table, int64_t row, uint8_t* record) {
  memcpy(record, row_bytes_at(table, row), size_t(row_bytes_of(table)));
  for (int s = 0; s < table.num_states; ++s) {
    memcpy(record + state_offset(table, s), state_at(table, s, row), state_bytes(table, s));
  }
}

// Rows lie far from each other, so each is prefetched while some before it are copied.
constexpr int64_t kRowsAhead = 4;

template <int kWrites>
void prefetch_bytes(void const* first, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(static_cast<char const*>(first) + at, kWrites);
    keep_prefetches();
  }
}

// A row and its states, as far as they are wide.
template <int kWrites>
void prefetch_row(TableRef const& table, int64_t row) {
  prefetch_bytes<kWrites>(row_bytes_at(table, row), row_bytes_of(table));
  for (int s = 0; s < table.num_states; ++s) {
    prefetch_bytes<kWrites>(state_at(table, s, row), static_cast<int64_t>(state_bytes(table, s)));
  }
}

// The tables have one shape, or are one table.
inline void copy_row_between(TableRef const& from, int64_t row, TableRef const& to, int64_t place) {
  memcpy(row_bytes_at(to, place), row_bytes_at(from, row), size_t(row_bytes_of(from)));
  for (int s = 0; s < from.num_states; ++s) {
    memcpy(state_at(to, s, place), state_at(from, s, row), state_bytes(from, s));
  }
}

inline uint8_t const* record_at(TierRef const& tier, int32_t slot) {
  return tier.homes + slot * tier.record_bytes;
}

// A row that is in no frame. `to`: a table like `table`, whose arrays get it.
inline void load_row(TableRef const& table, TierRef const& tier, int32_t slot, TableRef const& to,
                     int64_t row) {
  if (is_fresh(tier, slot)) return initialize_slot(ScalarGroup{}, to, *key_at(table, slot), row);
  row_from_record(to, record_at(tier, slot), row);
}

}  // namespace dynemb::cpu
