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
  auto const length = static_cast<uint64_t const*>(lengths)[bag];
  constexpr auto kMost = ~uint64_t{0} >> 1;
  return static_cast<int64_t>(length < kMost ? length : kMost);
}

// What a bag adds to the sum of those before it.
struct BagLength {
  uint32_t ids;  // at most capacity + 1
  bool is_negative;
};

DYNEMB_HD BagLength length_of_bag(OffsetsArgs const& args, int64_t bag) {
  auto const length = load_length(args.lengths, args.type, bag);
  if (length < 0) return {0, true};
  auto const past = int64_t{args.capacity} + 1;
  return {static_cast<uint32_t>(length < past ? length : past), false};
}

DYNEMB_HD uint32_t add_lengths(OffsetsArgs const& args, uint32_t a, uint32_t b) {
  auto const past = static_cast<uint32_t>(args.capacity) + 1;
  auto const sum = uint64_t{a} + b;
  return sum < past ? static_cast<uint32_t>(sum) : past;
}

DYNEMB_HD int32_t offset_of_sum(OffsetsArgs const& args, uint32_t sum) {
  auto const most = static_cast<uint32_t>(args.capacity);
  return static_cast<int32_t>(sum < most ? sum : most);
}

// Whether a bag got fewer ids than its length says, `before` being the sum of those before it.
DYNEMB_HD bool is_cut(OffsetsArgs const& args, uint32_t before, BagLength const& bag) {
  auto const past = static_cast<uint32_t>(args.capacity) + 1;
  return bag.is_negative || (bag.ids > 0 && add_lengths(args, before, bag.ids) == past);
}

}  // namespace dynemb
