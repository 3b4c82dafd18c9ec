// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// The vectors of SipHash-2-4's authors, reserved ids, and loops against the function of one value.
#include "core/string_hash.h"

#include <cassert>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu/hash_ids.h"

namespace {

using namespace dynemb;

// Key 00 01 ... 0f, message 00 01 ... of 0 to 15 bytes; least significant byte first.
constexpr unsigned char kVectors[16][8] = {
    {0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72},
    {0xfd, 0x67, 0xdc, 0x93, 0xc5, 0x39, 0xf8, 0x74},
    {0x5a, 0x4f, 0xa9, 0xd9, 0x09, 0x80, 0x6c, 0x0d},
    {0x2d, 0x7e, 0xfb, 0xd7, 0x96, 0x66, 0x67, 0x85},
    {0xb7, 0x87, 0x71, 0x27, 0xe0, 0x94, 0x27, 0xcf},
    {0x8d, 0xa6, 0x99, 0xcd, 0x64, 0x55, 0x76, 0x18},
    {0xce, 0xe3, 0xfe, 0x58, 0x6e, 0x46, 0xc9, 0xcb},
    {0x37, 0xd1, 0x01, 0x8b, 0xf5, 0x00, 0x02, 0xab},
    {0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93},
    {0xb0, 0xe4, 0xa9, 0x0b, 0xdf, 0x82, 0x00, 0x9e},
    {0xf3, 0xb9, 0xdd, 0x94, 0xc5, 0xbb, 0x5d, 0x7a},
    {0xa7, 0xad, 0x6b, 0x22, 0x46, 0x2f, 0xb3, 0xf4},
    {0xfb, 0xe5, 0x0e, 0x86, 0xbc, 0x8f, 0x1e, 0x75},
    {0x90, 0x3d, 0x84, 0xc0, 0x27, 0x56, 0xea, 0x14},
    {0xee, 0xf2, 0x7a, 0x8e, 0x90, 0xca, 0x23, 0xf7},
    {0xe5, 0x45, 0xbe, 0x49, 0x61, 0xca, 0x29, 0xa1},
};
constexpr SipKey kKey = {0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull};

unsigned char const* bytes_of(std::string const& text) {
  return reinterpret_cast<unsigned char const*>(text.data());
}

int64_t id_of(std::string const& text) { return hash_bytes(kKey, bytes_of(text), text.size()); }

void test_vectors() {
  std::string message;
  for (auto const& vector : kVectors) {
    assert(id_of(message) == static_cast<int64_t>(little_endian_word(vector, 8)));
    message.push_back(static_cast<char>(message.size()));
  }
}

void test_reserved_ids_are_given_to_nothing() {
  for (int64_t hash = -4; hash <= -1; ++hash) {
    assert(id_of_hash(static_cast<uint64_t>(hash)) == INT64_MAX + (hash + 1));
  }
  assert(id_of_hash(static_cast<uint64_t>(-5)) == -5 && id_of_hash(0) == 0);
}

void test_integers_are_their_words() {
  std::vector<int64_t> const values = {0, 1, -1, INT64_MIN, INT64_MAX, 5};
  std::vector<uint64_t> const large = {0, 1, UINT64_MAX, uint64_t{1} << 63, 5};
  std::vector<int64_t> ids(values.size());
  cpu::hash_int64s(kKey, values.data(), 6, ids.data());
  for (size_t i = 0; i < values.size(); ++i) {
    std::string const word(reinterpret_cast<char const*>(&values[i]), 8);
    assert(ids[i] == id_of(word));
  }
  cpu::hash_uint64s(kKey, large.data(), 5, ids.data());
  for (size_t i = 0; i < large.size(); ++i) {
    std::string words(reinterpret_cast<char const*>(&large[i]), 8);
    if (large[i] >> 63 != 0) words += std::string(8, '\0');
    assert(ids[i] == id_of(words));
  }
}

void test_offsets_are_compared_with_the_data() {
  std::string const data = "abcdef";
  cpu::Bytes const bytes = {bytes_of(data), data.size()};
  std::vector<int64_t> ids(2);
  auto const hash = [&](std::vector<int32_t> const& offsets) {
    return cpu::hash_between_offsets(kKey, bytes, offsets.data(), 2, ids.data());
  };
  assert(hash({1, 1, 6}) && ids[0] == id_of("") && ids[1] == id_of("bcdef"));
  assert(!hash({0, 1, 7}) && !hash({-1, 1, 6}) && !hash({0, 5, 4}) && !hash({0, 9, 6}));
}

void test_text_of_fixed_width() {
  constexpr int64_t kCount = 100'000;  // threads
  std::vector<uint32_t> text;
  for (int64_t i = 0; i < kCount; ++i) text.insert(text.end(), {'a', 0x20ac, 0x1f600, 0});
  std::vector<int64_t> ids(kCount);
  assert(cpu::hash_fixed_text(kKey, text.data(), 4, kCount, ids.data()) == -1);
  auto const expected = id_of("a\xe2\x82\xac\xf0\x9f\x98\x80");
  for (auto const id : ids) assert(id == expected);
  for (uint32_t const bad : {0xd800u, 0xdfffu, 0x110000u, 0xffffffffu}) {
    text[4 * 70'000 + 1] = text[4 * 90'000 + 2] = bad;
    assert(cpu::hash_fixed_text(kKey, text.data(), 4, kCount, ids.data()) == 70'000);
  }
  assert(cpu::hash_fixed_text(kKey, text.data(), 0, 3, ids.data()) == -1 && ids[2] == id_of(""));
}

void test_bytes_of_fixed_width() {
  std::string const data("ab\0\0a\0b\0", 8);
  std::vector<int64_t> ids(2);
  cpu::hash_fixed_bytes(kKey, bytes_of(data), 4, true, 2, ids.data());
  assert(ids[0] == id_of("ab") && ids[1] == id_of(std::string("a\0b", 3)));
  cpu::hash_fixed_bytes(kKey, bytes_of(data), 4, false, 2, ids.data());
  assert(ids[0] == id_of(data.substr(0, 4)) && ids[1] == id_of(data.substr(4)));
}

}  // namespace

int main() {
  test_vectors();
  test_reserved_ids_are_given_to_nothing();
  test_integers_are_their_words();
  test_offsets_are_compared_with_the_data();
  test_text_of_fixed_width();
  test_bytes_of_fixed_width();
  return 0;
}
