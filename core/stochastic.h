// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/stochastic.h: float32 becomes 16 bits by stochastic rounding: up with the probability that
// the mean of many roundings needs, by random bits that are a function of (seed, key, column,
// step).
//
// So a row has the same bits on every platform, on any number of devices and in any order.
#pragma once

#include <cstdint>

#include "core/keys.h"
#include "core/macros.h"
#include "core/philox.h"
#include "core/table_ref.h"
#include "core/value_type.h"

namespace dynemb {

constexpr int kColumnsOfBlock = 8;  // 16 random bits each
// Every update draws for every column of its rows, and of a draw only the mean matters.
constexpr int kRoundingRounds = kLeastPhiloxRounds;
// Tells these numbers from those of initial rows, whose counter may be the same.
constexpr uint32_t kRoundingWord = 0x53524e44u;

// All random bits of one update depend on this.
struct RoundingSeed {
  uint64_t seed, step;
  uint32_t first_quad;  // of the columns that are here, as in RowSeed
  uint32_t array;       // 0: rows; 1 + s: state s
};

DYNEMB_HD RoundingSeed rounding_seed(uint64_t const* counters, uint64_t step) {
  return {counters[kSeed], step, static_cast<uint32_t>(counters[kFirstColumn] / 4), 0};
}

// After the update has been counted.
DYNEMB_HD RoundingSeed rounding_seed(uint64_t const* counters) {
  return rounding_seed(counters, counters[kStep]);
}

DYNEMB_HD PhiloxBlock rounding_counter(RoundingSeed const& seed, Key key, uint32_t block) {
  return {{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32), block,
           static_cast<uint32_t>(seed.step)}};
}

DYNEMB_HD uint32_t rounding_key0(RoundingSeed const& seed) {
  return static_cast<uint32_t>(seed.seed) ^ (kRoundingWord + seed.array);
}

DYNEMB_HD uint32_t rounding_key1(RoundingSeed const& seed) {
  return static_cast<uint32_t>(seed.seed >> 32) ^ static_cast<uint32_t>(seed.step >> 32);
}

// Columns 4 * quad to 4 * quad + 3 of the row of `key`, counted from the first one that is here.
DYNEMB_HD void rounding_bits(RoundingSeed const& seed, Key key, uint32_t quad,
                             uint32_t (&random)[4]) {
  auto const place = seed.first_quad + quad;
  PhiloxBlock blocks[1] = {rounding_counter(seed, key, place / 2)};
  philox<kRoundingRounds>(blocks, rounding_key0(seed), rounding_key1(seed));
  auto const second = place % 2 != 0;
  auto const low = second ? blocks[0].word[2] : blocks[0].word[0];
  auto const high = second ? blocks[0].word[3] : blocks[0].word[1];
  random[0] = low & 0xffffu;
  random[1] = low >> 16;
  random[2] = high & 0xffffu;
  random[3] = high >> 16;
}

// `random`: 16 bits. A number that 16 bits can hold stays as it is; a finite number does not become
// infinite. No branches, so that a CPU does many at a time.
DYNEMB_HD void round_stochastically(float value, uint32_t random, BFloat16* result) {
  auto const bits = float_bits(value);
  auto const magnitude = bits & 0x7fffffffu;
  auto const sum = magnitude + random;
  auto const rounded = sum < 0x7f7fffffu ? sum : 0x7f7fffffu;
  auto const special = magnitude > 0x7f800000u ? magnitude | 0x400000u : magnitude;
  auto const chosen = magnitude < 0x7f800000u ? rounded : special;
  result->bits = static_cast<uint16_t>((chosen | (bits & 0x80000000u)) >> 16);
}

// Below 2^-14 the numbers of 16 bits lie on the grid 2^-24, above it 13 bits are cut. From 2^16 on
// there is only infinity.
DYNEMB_HD void round_stochastically(float value, uint32_t random, Float16* result) {
  auto const bits = float_bits(value);
  auto const magnitude = bits & 0x7fffffffu;
  auto const cut = (magnitude + (random >> 3) - 0x38000000u) >> 13;
  auto const normal = cut < 0x7bffu ? cut : 0x7bffu;
  auto const scaled = float_from_bits(magnitude) * 0x1p24f;
  auto const below = scaled < 1024.0f ? scaled : 1024.0f;
  auto const whole = static_cast<int32_t>(below);
  auto const above = (below - static_cast<float>(whole)) * 65536.0f;
  auto const up = static_cast<float>(static_cast<int32_t>(random)) + 0.5f < above;
  auto const small = static_cast<uint32_t>(whole) + (up ? 1u : 0u);
  auto const special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  auto const large = magnitude < 0x47800000u ? normal : special;
  auto const chosen = magnitude < 0x38800000u ? small : large;
  result->bits = static_cast<uint16_t>(chosen | (bits >> 16 & 0x8000u));
}

}  // namespace dynemb
