// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tiers/swap_beside.cc: a thread of the pool copies records while others do something else.
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

SettleArgs arriving_of(WriteBackArgs const& args) {
  SettleArgs result;
  result.num_tables = args.num_tables;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const& one = args.tables[t];
    auto& settled = result.tables[t];
    settled = {one.table, {}, one.num_rows, one.counts, one.num_arriving, one.arriving, one.into};
    settled.tier.homes = one.homes;
    settled.tier.record_bytes = one.record_bytes;
  }
  return result;
}

// Rows go home before records come, because a record may come to a row that goes.
void swap(WriteBackArgs const& args, ThreadPool const& pool) {
  write_back(args, pool);
  settle(arriving_of(args), pool);
}

// A thread of the pool copies. If none has begun when end_swap is called, end_swap does it itself.
class Swap {
 public:
  explicit Swap(WriteBackArgs const& args) : args_(args) {}

  void run(ThreadPool const& pool) {
    if (taken_.exchange(true)) return;
    swap(args_, pool);
    std::lock_guard<std::mutex> const lock(mutex_);
    done_ = true;
    finished_.notify_all();
  }

  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [&] { return done_; });
  }

 private:
  WriteBackArgs const args_;
  std::atomic<bool> taken_{false};
  std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false;
};

// By the homes of the first table, which no other call changes before the swap has ended.
struct BegunSwaps {
  std::mutex mutex;
  std::map<void const*, std::shared_ptr<Swap>> by_homes;
};

BegunSwaps& begun_swaps() {
  static auto* const swaps = new BegunSwaps;  // threads of the pool may outlive statics
  return *swaps;
}

}  // namespace

void begin_swap(WriteBackArgs const& args, ThreadPool const& pool) {
  auto const swap = std::make_shared<Swap>(args);
  {
    auto& begun = begun_swaps();
    std::lock_guard<std::mutex> const lock(begun.mutex);
    begun.by_homes[args.tables[0].homes] = swap;
  }
  if (pool.num_threads > 1 && pool.schedule) {
    pool.schedule([swap] { swap->run(ThreadPool{}); });
  }
}

void end_swap(WriteBackArgs const& args, ThreadPool const& pool) {
  std::shared_ptr<Swap> swap;
  {
    auto& begun = begun_swaps();
    std::lock_guard<std::mutex> const lock(begun.mutex);
    auto const found = begun.by_homes.find(args.tables[0].homes);
    if (found == begun.by_homes.end()) return;  // the handler says so
    swap = found->second;
    begun.by_homes.erase(found);
  }
  swap->run(pool);
  swap->wait();
}

}  // namespace dynemb::cpu
