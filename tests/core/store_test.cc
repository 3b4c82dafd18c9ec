// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/store_test.cc: the checksum has its published values, the index of a log equals a map,
// and a log keeps the last row of each key.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cpu/store/crc32c.h"
#include "cpu/store/key_index.h"
#include "cpu/store/log.h"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb::cpu::store;
using dynemb::testing::random_at;

// The values are of RFC 3720, B.4, and the check value of the catalogue of CRCs.
void check_crc32c() {
  unsigned char bytes[32];
  std::memset(bytes, 0, 32);
  CHECK(crc32c(0, bytes, 32) == 0x8a9136aau);
  std::memset(bytes, 0xff, 32);
  CHECK(crc32c(0, bytes, 32) == 0x62a8ab43u);
  for (int i = 0; i < 32; ++i) bytes[i] = static_cast<unsigned char>(i);
  CHECK(crc32c(0, bytes, 32) == 0x46dd794eu);
  CHECK(crc32c(0, "123456789", 9) == 0xe3069283u);
  for (size_t size = 0; size < 32; ++size) {
    CHECK(crc32c(0, bytes, size) == crc32c_portable(0, bytes, size));
    CHECK(crc32c(crc32c(0, bytes, size), bytes + size, 32 - size) == 0x46dd794eu);
  }
}

// Few keys, so that runs are long and wrap around; then many, so that the index grows.
void check_index(uint64_t keys, uint64_t turns) {
  KeyIndex index(random_at(keys));
  std::unordered_map<uint64_t, uint64_t> truth;
  for (uint64_t turn = 0; turn < turns; ++turn) {
    auto const key = random_at(random_at(turn) % keys);
    auto const known = truth.find(key);
    auto const expected = known == truth.end() ? KeyIndex::kNone : known->second;
    CHECK(index.find(key) == expected);
    if (random_at(turn ^ 0x5555) % 3 == 0) {
      CHECK(index.erase(key) == expected);
      truth.erase(key);
    } else {
      CHECK(index.put(key, turn) == expected);
      truth[key] = turn;
    }
  }
  CHECK(index.size() == truth.size());
  uint64_t seen = 0;
  index.for_each([&](uint64_t key, uint64_t place) {
    CHECK(truth.at(key) == place);
    ++seen;
  });
  CHECK(seen == truth.size());
}

std::vector<unsigned char> rows_of(std::vector<uint64_t> const& keys, uint64_t version,
                                   uint64_t payload) {
  std::vector<unsigned char> rows(keys.size() * payload);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<unsigned char>(keys[i / payload] * 31 + version * 7 + i % payload);
  }
  return rows;
}

void check_log(std::string const& folder) {
  uint64_t const payload = 21;
  Log log({7, payload, "{}"}, 1, 4);
  std::vector<uint64_t> keys(3000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = random_at(i);
  log.start_segment(folder + "/1", 1);
  log.put(keys.data(), rows_of(keys, 1, payload).data(), keys.size());
  auto const first = log.finish_segment();
  log.start_segment(folder + "/2", 2);
  std::vector<uint64_t> const some(keys.begin(), keys.begin() + 1000);
  auto const newer = rows_of(some, 2, payload);

  // Readers beside the writer see one version or the other.
  std::thread reader([&] {
    std::vector<unsigned char> rows(some.size() * payload);
    auto const older = rows_of(some, 1, payload);
    std::vector<char> found(some.size());
    for (int turn = 0; turn < 50; ++turn) {
      log.get(some.data(), some.size(), reinterpret_cast<bool*>(found.data()), rows.data());
      for (size_t i = 0; i < some.size(); ++i) {
        auto const* const row = rows.data() + i * payload;
        CHECK(found[i] != 0);
        CHECK(std::memcmp(row, older.data() + i * payload, payload) == 0 ||
              std::memcmp(row, newer.data() + i * payload, payload) == 0);
      }
    }
  });
  for (size_t begin = 0; begin < some.size(); begin += 100) {
    log.put(some.data() + begin, newer.data() + begin * payload, 100);
  }
  reader.join();
  CHECK(log.discard(keys.data() + 2000, 1000) == 1000);
  auto const second = log.finish_segment();
  log.sync_segment(2);
  CHECK(log.rows() == 2000 && log.usage()[0].live == 1000 && log.usage()[1].live == 1000);

  Log again({7, payload, ""}, 2, 1);
  again.open_segment(folder + "/1", first, log.live_bits(1));
  again.open_segment(folder + "/2", second, log.live_bits(2));
  CHECK(again.rows() == 2000 && again.digest() == log.digest());
  std::vector<unsigned char> rows(keys.size() * payload);
  std::vector<char> found(keys.size());
  again.get(keys.data(), keys.size(), reinterpret_cast<bool*>(found.data()), rows.data());
  auto const old = rows_of(keys, 1, payload);
  for (size_t i = 0; i < keys.size(); ++i) {
    CHECK((found[i] != 0) == (i < 2000));
    auto const* const expected = (i < 1000 ? newer : old).data() + i * payload;
    if (i < 2000) CHECK(std::memcmp(rows.data() + i * payload, expected, payload) == 0);
  }
  auto damaged = false;
  try {
    Log({8, payload, ""}, 2, 1).open_segment(folder + "/1", first, log.live_bits(1));
  } catch (DamagedFile const& error) {
    damaged = error.path == folder + "/1";
  }
  CHECK(damaged);
  for (auto const* name : {"/1", "/2"}) ::unlink((folder + name).c_str());
}

}  // namespace

int main() {
  check_crc32c();
  check_index(700, 20'000);
  check_index(100'000, 300'000);
  char folder[] = "/tmp/dynemb_store_XXXXXX";
  CHECK(::mkdtemp(folder) != nullptr);
  check_log(folder);
  ::rmdir(folder);
  std::puts("store_test: ok");
}
