// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/distinct.h: numbers of rows of a tensor train, in ascending order. A number is that of its
// prefix times `num_suffixes`, plus that of its suffix.
//
// Numbers are data: any uint32. One that is not below `limit` has no row. One whose prefix does not
// exist has a row, but no suffix, and the row is behind those of all prefixes.
#pragma once

#include <cstdint>

#include "core/args.h"
#include "core/macros.h"

namespace dynemb {

constexpr uint32_t kNoNumber = ~0u;  // not below any limit: it is the last in order

struct NumberParts {
  uint32_t limit;
  uint32_t num_suffixes;
  uint32_t num_prefixes;

  DYNEMB_HD uint32_t key_of(uint32_t number) const { return number < limit ? number : kNoNumber; }

  DYNEMB_HD uint32_t prefix_of(uint32_t number) const {
    auto const prefix = number / num_suffixes;
    return prefix < num_prefixes ? prefix : num_prefixes;
  }

  // -1: its prefix does not exist.
  DYNEMB_HD int32_t suffix_of(uint32_t number) const {
    auto const prefix = number / num_suffixes;
    return prefix < num_prefixes ? static_cast<int32_t>(number - prefix * num_suffixes) : -1;
  }
};

inline NumberParts parts_of(DistinctArgs const& args) {
  return {args.limit, args.num_suffixes, static_cast<uint32_t>(args.num_prefixes)};
}

// Starts of prefixes that have one value.
struct PrefixRange {
  uint32_t begin, end;
};

// The prefixes that begin at a place of the order, whose key is `key`. `before`: the key at the
// place before; unused at the first place.
DYNEMB_HD PrefixRange prefixes_at(NumberParts const& parts, bool is_first_place, uint32_t before,
                                  uint32_t key) {
  if (!is_first_place && before == kNoNumber) return {0, 0};
  return {is_first_place ? 0 : parts.prefix_of(before) + 1,
          (key == kNoNumber ? parts.num_prefixes : parts.prefix_of(key)) + 1};
}

// The prefixes that begin behind the last place of the order, whose key is `key`.
DYNEMB_HD PrefixRange prefixes_behind(NumberParts const& parts, uint32_t key) {
  if (key == kNoNumber) return {0, 0};
  return {parts.prefix_of(key) + 1, parts.num_prefixes + 1};
}

}  // namespace dynemb
