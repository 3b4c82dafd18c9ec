// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/huge_pages.cc: large arrays lie in pages of 2 MiB.
#include "cpu/loops/huge_pages.h"

#include "cpu/loops/row_ops.h"

#ifdef __linux__
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>

namespace dynemb::cpu {
namespace {

constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
constexpr int kCollapse = 25;  // MADV_COLLAPSE, Linux 6.1; older systems refuse it

bool allowed() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  return !line.empty() && line.find("[never]") == std::string::npos;
}

// How many pages of an array have been moved. A small table without chains: an array that pushes
// another one out makes it start again, which costs little, as its pages are moved already.
class Progress {
 public:
  Progress(uintptr_t address, size_t bytes) {
    static std::atomic<uint64_t> all[1024] = {};
    auto const hash = hash_number(address ^ (uint64_t{bytes} << 20));
    entry_ = &all[hash >> 54];
    tag_ = hash << kCountBits | uint64_t{1} << (kCountBits - 1);  // never 0
  }
  bool is_known() const { return (load() ^ tag_) >> (kCountBits - 1) == 0; }
  size_t pages() const { return load() & kCountMask; }
  void set(size_t pages) { entry_->store(tag_ | pages, std::memory_order_relaxed); }

 private:
  static constexpr int kCountBits = 32;
  static constexpr uint64_t kCountMask = (uint64_t{1} << (kCountBits - 1)) - 1;
  uint64_t load() const { return entry_->load(std::memory_order_relaxed); }

  std::atomic<uint64_t>* entry_;
  uint64_t tag_;
};

// The whole huge pages of an array.
struct Pages {
  Pages(void const* address, size_t bytes) {
    static bool const is_allowed = allowed();
    auto const begin = reinterpret_cast<uintptr_t>(address);
    first = (begin + kHugePage - 1) / kHugePage;
    auto const last = (begin + bytes) / kHugePage;
    count = is_allowed && first < last ? last - first : 0;
  }
  void advise(size_t begin, size_t end, int advice) const {
    madvise(reinterpret_cast<void*>((first + begin) * kHugePage), (end - begin) * kHugePage,
            advice);
  }

  uintptr_t first;
  size_t count;
};

}  // namespace

void begin_in_huge_pages(void const* address, size_t bytes) {
  Pages const pages(address, bytes);
  if (pages.count == 0) return;
  pages.advise(0, pages.count, MADV_HUGEPAGE);
  Progress(reinterpret_cast<uintptr_t>(address), bytes).set(pages.count);
}

void prefer_huge_pages(void const* address, size_t bytes) {
  using Clock = std::chrono::steady_clock;
  static std::atomic<Clock::rep> next{0};  // when a page may be moved again
  Pages const pages(address, bytes);
  if (pages.count == 0) return;
  Progress progress(reinterpret_cast<uintptr_t>(address), bytes);
  if (!progress.is_known()) return progress.set(0);
  auto const done = progress.pages();
  if (done >= pages.count) return;
  auto const start = Clock::now().time_since_epoch().count();
  if (start < next.load(std::memory_order_relaxed)) return;
  // Without MADV_COLLAPSE the system moves what is advised, in its own time.
  if (done == 0) pages.advise(0, pages.count, MADV_HUGEPAGE);
  pages.advise(done, done + 1, kCollapse);
  progress.set(done + 1);
  auto const end = Clock::now().time_since_epoch().count();
  next.store(end + 19 * (end - start), std::memory_order_relaxed);
}

}  // namespace dynemb::cpu

#else

namespace dynemb::cpu {

void begin_in_huge_pages(void const*, size_t) {}

void prefer_huge_pages(void const*, size_t) {}

}  // namespace dynemb::cpu

#endif

namespace dynemb::cpu {

void prefer_huge_pages(TableRef const& table) {
  auto const slots = size_t(table.local_buckets) * kBucketCapacity;
  prefer_huge_pages(table.index, size_t(table.local_buckets * bucket_bytes(table.policy)));
  if (table.values != nullptr) {
    prefer_huge_pages(table.values, slots * size_t(bytes_of(table.value_type) * table.dim));
  }
  for (int s = 0; s < table.num_states; ++s) {
    prefer_huge_pages(table.states[s], slots * size_t(bytes_of_state(table, s)));
  }
}

}  // namespace dynemb::cpu
