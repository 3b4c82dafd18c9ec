// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/philox_lanes.h: the rounds of core/philox.h for sixteen blocks side by side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/stochastic.h"
#include "cpu/loops/isa.h"

#ifdef DYNEMB_X86
#include <immintrin.h>
#endif

namespace dynemb::cpu {

constexpr size_t kPhiloxLanes = 16;
constexpr uint32_t kPhiloxFactors[2] = {0xD2511F53u, 0xCD9E8D57u};
constexpr uint32_t kPhiloxSteps[2] = {0x9E3779B9u, 0xBB67AE85u};  // of the keys, after a round

// What all blocks have in common.
struct PhiloxSeed {
  uint32_t word3, key0, key1;
};

// draw(seed, keys, places, out): the counter of block i is that of rounding_counter(seed, keys[i],
// places[i]). Of each, the eight halves of its words, the low half of a word first.
template <Isa isa>
struct PhiloxLanes {
  static void draw(PhiloxSeed const& seed, Key const* keys, uint64_t const* places, uint16_t* out) {
    uint32_t word0[kPhiloxLanes], word1[kPhiloxLanes], word2[kPhiloxLanes], word3[kPhiloxLanes];
    for (size_t i = 0; i < kPhiloxLanes; ++i) {
      word0[i] = static_cast<uint32_t>(keys[i]);
      word1[i] = static_cast<uint32_t>(keys[i] >> 32);
      word2[i] = static_cast<uint32_t>(places[i]);
      word3[i] = seed.word3;
    }
    auto key0 = seed.key0, key1 = seed.key1;
    for (int round = 0; round < kRoundingRounds; ++round) {
      for (size_t i = 0; i < kPhiloxLanes; ++i) {
        auto const product0 = uint64_t{word0[i]} * kPhiloxFactors[0];
        auto const product1 = uint64_t{word2[i]} * kPhiloxFactors[1];
        word0[i] = static_cast<uint32_t>(product1 >> 32) ^ word1[i] ^ key0;
        word1[i] = static_cast<uint32_t>(product1);
        word2[i] = static_cast<uint32_t>(product0 >> 32) ^ word3[i] ^ key1;
        word3[i] = static_cast<uint32_t>(product0);
      }
      key0 += kPhiloxSteps[0];
      key1 += kPhiloxSteps[1];
    }
    for (size_t i = 0; i < kPhiloxLanes; ++i) {
      uint32_t const words[4] = {word0[i], word1[i], word2[i], word3[i]};
      for (size_t w = 0; w < 4; ++w) {
        out[8 * i + 2 * w] = static_cast<uint16_t>(words[w]);
        out[8 * i + 2 * w + 1] = static_cast<uint16_t>(words[w] >> 16);
      }
    }
  }
};

#ifdef DYNEMB_X86
// A word has 64 bits of a vector, the upper 32 of which mean nothing: a product reads the lower
// ones alone. So its halves need no shuffle.
template <>
struct PhiloxLanes<Isa::kAvx2> {
  DYNEMB_AVX2 static void draw(PhiloxSeed const& seed, Key const* keys, uint64_t const* places,
                               uint16_t* out) {
    constexpr int kVectors = 2;  // with the factors and keys all that there are registers for
    for (size_t begin = 0; begin < kPhiloxLanes; begin += kVectors * 4) {
      __m256i word0[kVectors], word1[kVectors], word2[kVectors], word3[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        word0[v] = load(keys + begin + 4 * v);
        word1[v] = _mm256_srli_epi64(word0[v], 32);
        word2[v] = load(places + begin + 4 * v);
        word3[v] = broadcast(seed.word3);
      }
      auto key0 = broadcast(seed.key0), key1 = broadcast(seed.key1);
      for (int round = 0; round < kRoundingRounds; ++round) {
        for (int v = 0; v < kVectors; ++v) {
          auto const product0 = _mm256_mul_epu32(word0[v], broadcast(kPhiloxFactors[0]));
          auto const product1 = _mm256_mul_epu32(word2[v], broadcast(kPhiloxFactors[1]));
          word0[v] = mixed(product1, word1[v], key0);
          word1[v] = product1;
          word2[v] = mixed(product0, word3[v], key1);
          word3[v] = product0;
        }
        key0 = _mm256_add_epi32(key0, broadcast(kPhiloxSteps[0]));
        key1 = _mm256_add_epi32(key1, broadcast(kPhiloxSteps[1]));
      }
      for (int v = 0; v < kVectors; ++v) {
        store(word0[v], word1[v], word2[v], word3[v], out + 8 * (begin + 4 * v));
      }
    }
  }

 private:
  DYNEMB_AVX2 static __m256i load(uint64_t const* from) {
    return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from));
  }
  DYNEMB_AVX2 static __m256i broadcast(uint32_t word) {
    return _mm256_set1_epi64x(static_cast<int64_t>(word));
  }
  DYNEMB_AVX2 static __m256i mixed(__m256i product, __m256i word, __m256i key) {
    return _mm256_xor_si256(_mm256_srli_epi64(product, 32), _mm256_xor_si256(word, key));
  }
  // Joins the two words side by side.
  DYNEMB_AVX2 static __m256i joined(__m256i low, __m256i high) {
    return _mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0xaa);
  }
  DYNEMB_AVX2 static void store(__m256i word0, __m256i word1, __m256i word2, __m256i word3,
                                uint16_t* out) {
    auto const low = joined(word0, word1), high = joined(word2, word3);
    auto const even = _mm256_unpacklo_epi64(low, high), odd = _mm256_unpackhi_epi64(low, high);
    auto* const to = reinterpret_cast<__m256i*>(out);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
};

template <>
struct PhiloxLanes<Isa::kAvx512> : PhiloxLanes<Isa::kAvx2> {};
#endif

}  // namespace dynemb::cpu
