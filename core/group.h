// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/group.h: what an algorithm of core/ may use of the lanes that run it together.
//
// A Group has `size()` lanes; each calls the same function with its own `rank()`. Where lanes
// decide together (core/full_bucket.h), it has at least kLeastSize of them, and members that every
// lane must reach: `ballot(bool)`, a bit for each lane, by rank; `min(uint64_t)`;
// `broadcast(uint64_t, rank)`, the value that this lane holds.
//
// ScalarGroup is the group of one CPU thread; cuda/grid/warp.cuh has the warp;
// tests/core/lockstep_group.h imitates a group with threads.
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
  DYNEMB_HD int size() const { return 1; }
  DYNEMB_HD int rank() const { return 0; }
};

}  // namespace dynemb
