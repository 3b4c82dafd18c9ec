// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/philox.h: Philox4x32, the counter-based generator of Salmon, Moraes, Dror and Shaw,
// "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011. Four random words from a 128-bit counter
// and a 64-bit key, with no state to keep.
#pragma once

#include <cstdint>

#include "core/macros.h"

namespace dynemb {

constexpr int kPhiloxRounds = 10;  // the authors' default, with a margin of safety
// The fewest with which the generator passed all tests of the paper (BigCrush).
constexpr int kLeastPhiloxRounds = 7;

struct PhiloxBlock {
  uint32_t word[4];
};

// Returns all 64 bits. nvcc compiles the plain expression to two instructions if a factor is a
// constant from 2^31 on.
DYNEMB_HD uint64_t wide_product(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return uint64_t{a} * b;
#endif
}

// Turns counters into random words. Several at a time share what is done to the key.
template <int kRounds = kPhiloxRounds, int kCount>
DYNEMB_HD void philox(PhiloxBlock (&blocks)[kCount], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < kRounds; ++round) {
    for (auto& block : blocks) {
      auto const product0 = wide_product(block.word[0], 0xD2511F53u);
      auto const product1 = wide_product(block.word[2], 0xCD9E8D57u);
      block = {{static_cast<uint32_t>(product1 >> 32) ^ block.word[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ block.word[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

}  // namespace dynemb
