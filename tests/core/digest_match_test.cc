// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/digest_match_test.cc: the masks of every instruction set, against a loop over bytes.
#include "cpu/lookup/digest_match.h"

#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using cpu::Isa;
using dynemb::testing::random_at;

struct alignas(64) Digests {
  uint8_t bytes[kBucketCapacity];
};

bool bit(cpu::DigestMask const& mask, int place) {
  return ((place < 64 ? mask.low : mask.high) >> place % 64 & 1) != 0;
}

// Every equal digest is found, and the first that is found is equal; the others may be hints.
template <Isa isa>
void finds_what_a_loop_finds() {
  for (uint64_t round = 0; round < 5000; ++round) {
    Digests digests;
    auto const spread = round % 2 == 0 ? 4 : 256;  // many equal digests, or few
    for (int i = 0; i < kBucketCapacity; ++i) {
      auto const random = random_at(round * kBucketCapacity + static_cast<uint64_t>(i));
      digests.bytes[i] = static_cast<uint8_t>(random % static_cast<uint64_t>(spread));
    }
    auto const hash = random_at(round) % static_cast<uint64_t>(spread);
    auto mask = cpu::match_digests<isa>(digests.bytes, digest_of(hash));
    int first = -1;
    for (int i = kBucketCapacity - 1; i >= 0; --i) {
      if (digests.bytes[i] != digest_of(hash)) continue;
      first = i;
      CHECK(bit(mask, i));
    }
    CHECK(mask.empty() == (first < 0));
    if (first < 0) continue;
    CHECK(mask.first() == first);
    mask.drop_first();
    CHECK(!bit(mask, first));
  }
}

}  // namespace

int main() {
  finds_what_a_loop_finds<Isa::kPortable>();
#ifdef DYNEMB_X86
  auto const isa = cpu::isa_in_use();
  if (isa >= Isa::kAvx2) finds_what_a_loop_finds<Isa::kAvx2>();
  if (isa >= Isa::kAvx512) finds_what_a_loop_finds<Isa::kAvx512>();
#endif
  std::printf("digest match: ok, instruction set %d in use\n", static_cast<int>(cpu::isa_in_use()));
  return 0;
}
