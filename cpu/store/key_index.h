// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/store/key_index.h: where the record of a key is; 19 to 25 bytes of memory a key.
#pragma once

#include <cstdint>
#include <vector>

#include "core/hash.h"

namespace dynemb::cpu::store {

// This is an open-addressing table with linear probing. The position of a key grows with its hash,
// so the table can have any size, and grows by a third.
class KeyIndex {
 public:
  using Place = uint64_t;
  static constexpr Place kNone = ~Place{0};

  explicit KeyIndex(uint64_t seed) : factors_(factors_of_seed(seed)), slots_(kFewest) {}

  Place find(uint64_t key) const { return slots_[position_of(key)].place; }

  // Returns the place that the key had before.
  Place put(uint64_t key, Place place) {
    if (size_ + 1 > slots_.size() / 100 * 85) grow();
    auto& slot = slots_[position_of(key)];
    auto const before = slot.place;
    slot = {key, place};
    size_ += before == kNone;
    return before;
  }

  // Returns the place that the key had.
  Place erase(uint64_t key) {
    auto hole = position_of(key);
    auto const before = slots_[hole].place;
    if (before == kNone) return kNone;
    --size_;
    // Moves later keys of the run into the hole, but never before their own position.
    for (auto next = after(hole); slots_[next].place != kNone; next = after(next)) {
      if (distance(home(slots_[next].key), next) >= distance(hole, next)) {
        slots_[hole] = slots_[next];
        hole = next;
      }
    }
    slots_[hole].place = kNone;
    return before;
  }

  void prefetch(uint64_t key) const { __builtin_prefetch(&slots_[home(key)]); }

  uint64_t size() const { return size_; }
  uint64_t bytes() const { return slots_.size() * sizeof(Slot); }

  template <class Function>
  void for_each(Function const& function) const {
    for (auto const& slot : slots_) {
      if (slot.place != kNone) function(slot.key, slot.place);
    }
  }

 private:
  struct Slot {
    uint64_t key = 0;
    Place place = kNone;
  };
  static constexpr uint64_t kFewest = 1000;

  uint64_t home(uint64_t key) const {
    auto const hash = hash_key(key, factors_);
    return static_cast<uint64_t>(static_cast<unsigned __int128>(hash) * slots_.size() >> 64);
  }

  uint64_t after(uint64_t position) const {
    return position + 1 == slots_.size() ? 0 : position + 1;
  }

  uint64_t distance(uint64_t from, uint64_t to) const {
    return to >= from ? to - from : to + slots_.size() - from;
  }

  // Of the key, or of the free slot that it would take.
  uint64_t position_of(uint64_t key) const {
    auto position = home(key);
    while (slots_[position].place != kNone && slots_[position].key != key) {
      position = after(position);
    }
    return position;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() + slots_.size() / 10 * 3);
    old.swap(slots_);
    for (auto const& slot : old) {
      if (slot.place != kNone) slots_[position_of(slot.key)] = slot;
    }
  }

  HashFactors factors_;
  std::vector<Slot> slots_;
  uint64_t size_ = 0;
};

}  // namespace dynemb::cpu::store
