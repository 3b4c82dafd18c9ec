// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/lookup/digest_match.h: the places of a bucket, or of half a bucket, with a digest, as bits.
#pragma once

#include <cstdint>

#include "core/find.h"
#include "core/table_ref.h"
#include "cpu/loops/isa.h"

#ifdef DYNEMB_X86
#include <immintrin.h>
#endif

namespace dynemb::cpu {

static_assert(kBucketCapacity == 128, "a mask has 128 bits");

// Bit i of `low` is place i, bit i of `high` place 64 + i.
struct DigestMask {
  uint64_t low, high;

  bool empty() const { return (low | high) == 0; }
  int first() const {
    return low != 0 ? __builtin_ctzll(low) : 64 + __builtin_ctzll(high | uint64_t{1} << 63);
  }
  void drop_first() { low != 0 ? low &= low - 1 : high &= high - 1; }
};

template <Isa isa>
struct DigestMatch {
  // 64 digests.
  static uint64_t match(uint8_t const* digests, uint8_t wanted) {
    uint64_t mask = 0;
#ifdef DYNEMB_X86
    auto const pattern = _mm_set1_epi8(static_cast<char>(wanted));
    for (int i = 0; i < 4; ++i) {
      auto const seen = _mm_load_si128(reinterpret_cast<__m128i const*>(digests) + i);
      auto const equal = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(seen, pattern)));
      mask |= uint64_t{equal} << 16 * i;
    }
#else
    auto const pattern = uint64_t{wanted} * 0x0101010101010101ull;
    for (int i = 0; i < 8; ++i) {
      auto const equal = equal_bytes(reinterpret_cast<uint64_t const*>(digests)[i], pattern);
      // The top bits of the eight bytes, gathered by a product without carries between its partial
      // sums.
      mask |= ((equal >> 7) * 0x0102040810204080ull >> 56) << 8 * i;
    }
#endif
    return mask;
  }
};

#ifdef DYNEMB_X86
template <>
struct DigestMatch<Isa::kAvx2> {
  DYNEMB_AVX2 static uint64_t match(uint8_t const* digests, uint8_t wanted) {
    auto const pattern = _mm256_set1_epi8(static_cast<char>(wanted));
    auto const* const halves = reinterpret_cast<__m256i const*>(digests);
    auto const low = _mm256_cmpeq_epi8(_mm256_loadu_si256(halves), pattern);
    auto const high = _mm256_cmpeq_epi8(_mm256_loadu_si256(halves + 1), pattern);
    return static_cast<uint32_t>(_mm256_movemask_epi8(low)) |
           uint64_t{static_cast<uint32_t>(_mm256_movemask_epi8(high))} << 32;
  }
};

template <>
struct DigestMatch<Isa::kAvx512> {
  DYNEMB_AVX512 static uint64_t match(uint8_t const* digests, uint8_t wanted) {
    return _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(digests),
                                  _mm512_set1_epi8(static_cast<char>(wanted)));
  }
};
#endif

template <Isa isa>
DigestMask match_digests(uint8_t const* digests, uint8_t wanted) {
  return {DigestMatch<isa>::match(digests, wanted), DigestMatch<isa>::match(digests + 64, wanted)};
}

}  // namespace dynemb::cpu
