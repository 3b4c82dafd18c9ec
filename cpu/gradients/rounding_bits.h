// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/rounding_bits.h: the random bits by which some rows are rounded, many blocks of
// columns at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/macros.h"
#include "core/stochastic.h"
#include "core/table_ref.h"
#include "cpu/gradients/update_row.h"

namespace dynemb::cpu {

// One for each thread and array, kept between rows: the arrays only grow.
class RoundingBits {
 public:
  // `array`: see RoundingSeed.
  static RoundingBits& of_this_thread(int array) {
    thread_local RoundingBits bits[1 + kMaxStates];
    return bits[array];
  }

  // Of all rows together: narrow ones have one block each, a sixteenth of a vector.
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
      auto const key = *key_at(table, static_cast<int32_t>(rows.slots[r]));
      for (uint32_t b = 0; b < blocks_; ++b, ++at) {
        keys_[at] = key;
        places_[at] = seed.first_quad / 2 + b;
      }
    }
    for (size_t begin = 0; begin < count; begin += kLanes) draw_some(seed, begin);
  }

  // Of the columns of row `r`, 16 bits each.
  uint16_t const* of_row(int r) const {
    return bits_.data() + size_t(r) * blocks_ * kColumnsOfBlock + first_column_;
  }

 private:
  static constexpr size_t kLanes = 16;

  void reserve(size_t blocks) {
    if (keys_.size() >= blocks) return;
    keys_.resize(blocks);
    places_.resize(blocks);
    bits_.resize(blocks * kColumnsOfBlock);
  }

  // The rounds of core/philox.h, with the words of 16 blocks side by side.
  void draw_some(RoundingSeed const& seed, size_t begin) {
    uint32_t word0[kLanes], word1[kLanes], word2[kLanes], word3[kLanes];
    for (size_t i = 0; i < kLanes; ++i) {
      auto const key = keys_[begin + i];
      word0[i] = static_cast<uint32_t>(key);
      word1[i] = static_cast<uint32_t>(key >> 32);
      word2[i] = places_[begin + i];
      word3[i] = static_cast<uint32_t>(seed.step);
    }
    auto key0 = rounding_key0(seed), key1 = rounding_key1(seed);
    for (int round = 0; round < kRoundingRounds; ++round) {
      for (size_t i = 0; i < kLanes; ++i) {
        auto const product0 = uint64_t{word0[i]} * 0xD2511F53u;
        auto const product1 = uint64_t{word2[i]} * 0xCD9E8D57u;
        word0[i] = static_cast<uint32_t>(product1 >> 32) ^ word1[i] ^ key0;
        word1[i] = static_cast<uint32_t>(product1);
        word2[i] = static_cast<uint32_t>(product0 >> 32) ^ word3[i] ^ key1;
        word3[i] = static_cast<uint32_t>(product0);
      }
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    uint32_t words[kLanes * 4];
    for (size_t i = 0; i < kLanes; ++i) {
      words[4 * i] = word0[i];
      words[4 * i + 1] = word1[i];
      words[4 * i + 2] = word2[i];
      words[4 * i + 3] = word3[i];
    }
    // The low half of a word is that of the lower column.
    auto* const out = bits_.data() + begin * kColumnsOfBlock;
    for (size_t i = 0; i < kLanes * 4; ++i) {
      out[2 * i] = static_cast<uint16_t>(words[i]);
      out[2 * i + 1] = static_cast<uint16_t>(words[i] >> 16);
    }
  }

  uint32_t first_column_ = 0, blocks_ = 0;
  std::vector<Key> keys_;         // [blocks] of the row
  std::vector<uint32_t> places_;  // [blocks] of the row's columns
  std::vector<uint16_t> bits_;    // [blocks, columns of a block]
};

}  // namespace dynemb::cpu
