// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "cpu/store/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__) && !defined(DYNEMB_PORTABLE)
#define DYNEMB_CRC_INSTRUCTION
#endif

namespace dynemb::cpu::store {
namespace {

using Table = std::array<std::array<uint32_t, 256>, 8>;

constexpr uint32_t kPolynomial = 0x82f63b78u;  // Castagnoli's, with its bits reversed

// tables[k][b]: what byte b does to the checksum when k more bytes follow.
constexpr Table make_tables() {
  Table tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    auto crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kPolynomial : 0u);
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (size_t k = 1; k < 8; ++k) {
      auto const before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xffu];
    }
  }
  return tables;
}

constexpr Table kTables = make_tables();

uint64_t word_at(unsigned char const* data) {
  uint64_t word = 0;
  std::memcpy(&word, data, sizeof word);
  return word;
}

#ifdef DYNEMB_CRC_INSTRUCTION
__attribute__((target("sse4.2"))) uint32_t crc32c_instruction(uint32_t before, void const* given,
                                                              size_t size) {
  auto const* data = static_cast<unsigned char const*>(given);
  uint64_t crc = ~before;
  for (; size >= 8; size -= 8, data += 8) crc = __builtin_ia32_crc32di(crc, word_at(data));
  auto rest = static_cast<uint32_t>(crc);
  for (; size > 0; --size, ++data) rest = __builtin_ia32_crc32qi(rest, *data);
  return ~rest;
}
#endif

}  // namespace

uint32_t crc32c_portable(uint32_t before, void const* given, size_t size) {
  auto const* data = static_cast<unsigned char const*>(given);
  auto crc = ~before;
  for (; size >= 8; size -= 8, data += 8) {
    auto const word = word_at(data) ^ crc;  // little-endian, as all supported platforms are
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xffu];
  }
  for (; size > 0; --size, ++data) crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 0xffu];
  return ~crc;
}

uint32_t crc32c(uint32_t before, void const* data, size_t size) {
#ifdef DYNEMB_CRC_INSTRUCTION
  static auto const has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_instruction(before, data, size);
#endif
  return crc32c_portable(before, data, size);
}

}  // namespace dynemb::cpu::store
