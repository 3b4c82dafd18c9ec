// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/offsets.h: from the lengths of bags to where each bag begins.
//
// Lengths are data: a negative one counts as 0, and no bag reaches past the ids that there are. So
// offsets never fall and lie in [0, capacity], whatever the lengths, and what was cut is counted.
//
// Sums stop at capacity + 1, "past the end". A sum of numbers of at most 2^31 that stops there is
// the same in any order, and never overflows 32 bits.
#pragma once

#include <cstdint>

#include "core/args.h"
#include "core/macros.h"

namespace dynemb {

template <class Length>
DYNEMB_HD int64_t as_length(Length length) {
  return length;
}

DYNEMB_HD int64_t as_length(uint64_t length) {
  constexpr auto kMost = ~uint64_t{0} >> 1;
  return static_cast<int64_t>(length < kMost ? length : kMost);
}

DYNEMB_HD int64_t load_length(void const* lengths, LengthType type, int64_t bag) {
  switch (type) {
    case LengthType::kInt32:
      return static_cast<int32_t const*>(lengths)[bag];
    case LengthType::kUInt32:
      return static_cast<uint32_t const*>(lengths)[bag];
    case LengthType::kInt64:
      return static_cast<int64_t const*>(lengths)[bag];
    case LengthType::kUInt64:
      break;
  }
  return as_length(static_cast<uint64_t const*>(lengths)[bag]);
}

// What a bag adds to the sum of those before it.
struct BagLength {
  uint32_t ids;  // at most capacity + 1
  bool is_negative;
};

DYNEMB_HD BagLength bag_of_length(BagLengths const& bags, int64_t length) {
  if (length < 0) return {0, true};
  auto const past = int64_t{bags.capacity} + 1;
  return {static_cast<uint32_t>(length < past ? length : past), false};
}

DYNEMB_HD BagLength length_of_bag(BagLengths const& bags, int64_t bag) {
  return bag_of_length(bags, load_length(bags.lengths, bags.type, bag));
}

DYNEMB_HD uint32_t add_lengths(BagLengths const& bags, uint32_t a, uint32_t b) {
  auto const past = static_cast<uint32_t>(bags.capacity) + 1;
  auto const sum = uint64_t{a} + b;
  return sum < past ? static_cast<uint32_t>(sum) : past;
}

DYNEMB_HD int32_t offset_of_sum(BagLengths const& bags, uint32_t sum) {
  auto const most = static_cast<uint32_t>(bags.capacity);
  return static_cast<int32_t>(sum < most ? sum : most);
}

// Whether a bag got fewer ids than its length says, `before` being the sum of those before it.
DYNEMB_HD bool is_cut(BagLengths const& bags, uint32_t before, BagLength const& bag) {
  auto const past = static_cast<uint32_t>(bags.capacity) + 1;
  return bag.is_negative || (bag.ids > 0 && add_lengths(bags, before, bag.ids) == past);
}

}  // namespace dynemb
