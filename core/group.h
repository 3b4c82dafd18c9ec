// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/group.h: what an algorithm of core/ may ask of the lanes that run it together.
//
// A Group has `size()` lanes, at least kLeastSize; each calls the same function with its own
// `rank()`. The collective members must be reached by every lane of the group. ScalarGroup is the
// group of one CPU thread; cuda/warp.cuh has the warp; tests/core/lockstep_group.h imitates a group
// with threads.
#pragma once

#include <cstdint>

#include "core/macros.h"

namespace dynemb {

DYNEMB_HD int lowest_bit(uint64_t lanes) {
#ifdef __CUDA_ARCH__
  return __ffs(static_cast<int>(lanes)) - 1;
#else
  return __builtin_ctzll(lanes);
#endif
}

struct ScalarGroup {
  static constexpr int kLeastSize = 1;
  DYNEMB_HD int size() const { return 1; }
  DYNEMB_HD int rank() const { return 0; }
  // A bit for each lane, by rank.
  DYNEMB_HD uint64_t ballot(bool value) const { return value ? 1 : 0; }
  DYNEMB_HD uint64_t min(uint64_t value) const { return value; }
  // The value that lane `rank` holds.
  DYNEMB_HD uint64_t broadcast(uint64_t value, int /*rank*/) const { return value; }
};

}  // namespace dynemb
