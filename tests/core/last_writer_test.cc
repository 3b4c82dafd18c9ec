// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/last_writer_test.cc: whatever the threads, the last position of each slot wins.
#include "core/last_writer.h"

#include <map>
#include <thread>
#include <vector>

#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using dynemb::testing::random_at;

// `distinct` slots, or fewer, and five of sixteen negative, which are of no slot.
std::vector<int32_t> random_slots(size_t count, uint64_t distinct, uint64_t stream) {
  std::vector<int32_t> slots;
  for (uint64_t i = 0; i < count; ++i) {
    auto const random = random_at(stream << 32 | i);
    auto const slot = static_cast<int32_t>(random % distinct * 0x9e37 % 0x7fffffff);
    slots.push_back(random >> 60 < 5 ? -1 : slot);
  }
  return slots;
}

void note_by_threads(LastWriters const& writers, std::vector<int32_t> const& slots,
                     size_t threads) {
  std::vector<std::thread> running;
  for (size_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      for (size_t i = 0; i < slots.size(); ++i) {
        auto const position = t % 2 == 0 ? i : slots.size() - 1 - i;
        if (position % threads != t || slots[position] < 0) continue;
        note_writer(writers, slots[position], static_cast<int64_t>(position));
      }
    });
  }
  for (auto& thread : running) thread.join();
}

void check(std::vector<int32_t> const& slots) {
  std::map<int32_t, size_t> last;
  for (size_t i = 0; i < slots.size(); ++i) last[slots[i]] = i;
  std::vector<uint64_t> entries(LastWriters::entries_for(static_cast<int64_t>(slots.size())));
  CHECK(entries.size() >= 2 * slots.size() && (entries.size() & (entries.size() - 1)) == 0);
  LastWriters const writers{entries.data(), entries.size() - 1};
  note_by_threads(writers, slots, 4);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0) continue;
    auto const is_last = is_last_writer(writers, slots[i], static_cast<int64_t>(i));
    CHECK(is_last == (last[slots[i]] == i));
  }
}

}  // namespace

int main() {
  for (uint64_t repeat = 0; repeat < 20; ++repeat) {
    check(random_slots(1, 1, repeat));
    check(random_slots(1000, 1, repeat));        // one slot
    check(random_slots(1000, 3, repeat));        //
    check(random_slots(4096, 4096, repeat));     // entries for twice as many
    check(random_slots(4096, 1 << 30, repeat));  // hardly any twice
  }
  std::vector<int32_t> all(4096);
  for (int32_t i = 0; i < 4096; ++i) all[size_t(i)] = 0x7fffffff - i;
  check(all);
  std::puts("last_writer: ok");
  return 0;
}
