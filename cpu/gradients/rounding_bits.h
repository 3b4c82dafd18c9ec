// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/rounding_bits.h: the random bits by which some rows are rounded, many blocks of
// columns at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/stochastic.h"
#include "core/table_ref.h"
#include "cpu/gradients/philox_lanes.h"
#include "cpu/gradients/update_row.h"
#include "cpu/loops/isa.h"

namespace dynemb::cpu {

// Each thread keeps one for each array between rows, so the memory only grows.
class RoundingBits {
 public:
  // `array`: see RoundingSeed.
  static RoundingBits& of_this_thread(int array) {
    thread_local RoundingBits bits[1 + kMaxStates];
    return bits[array];
  }

  // Of all rows together: narrow ones have one block each, a sixteenth of a vector.
  template <Isa isa>
  void draw(TableRef const& table, RowUpdates const& rows, int array) {
    auto seed = rounding_seed(table.counters);
    seed.array = static_cast<uint32_t>(array);
    first_column_ = seed.first_quad % 2 * 4;
    blocks_ =
        (first_column_ + static_cast<uint32_t>(table.dim) + kColumnsOfBlock - 1) / kColumnsOfBlock;
    auto const count = size_t(rows.count) * blocks_;
    reserve((count + kLanes - 1) / kLanes * kLanes);
    size_t at = 0;
    for (int r = 0; r < rows.count; ++r) {
      auto const key = *rounding_key_at(table, static_cast<int32_t>(rows.slots[r]));
      for (uint32_t b = 0; b < blocks_; ++b, ++at) {
        keys_[at] = key;
        places_[at] = uint64_t{seed.first_quad} / 2 + b;
      }
    }
    PhiloxSeed const own{static_cast<uint32_t>(seed.step), rounding_key0(seed),
                         rounding_key1(seed)};
    for (size_t begin = 0; begin < count; begin += kLanes) {
      PhiloxLanes<isa>::draw(own, keys_.data() + begin, places_.data() + begin,
                             bits_.data() + begin * kColumnsOfBlock);
    }
  }

  // Each column of row `r` has 16 bits.
  uint16_t const* of_row(int r) const {
    return bits_.data() + size_t(r) * blocks_ * kColumnsOfBlock + first_column_;
  }

 private:
  static constexpr size_t kLanes = kPhiloxLanes;

  void reserve(size_t blocks) {
    if (keys_.size() >= blocks) return;
    keys_.resize(blocks);
    places_.resize(blocks);
    bits_.resize(blocks * kColumnsOfBlock);
  }

  uint32_t first_column_ = 0, blocks_ = 0;
  std::vector<Key> keys_;         // [blocks] of the row
  std::vector<uint64_t> places_;  // [blocks] of the row's columns
  std::vector<uint16_t> bits_;    // [blocks, columns of a block]
};

}  // namespace dynemb::cpu
