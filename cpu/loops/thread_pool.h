// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/thread_pool.h: loops divided among the threads of a pool, XLA's in production.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

namespace dynemb::cpu {

struct ThreadPool {
  int64_t num_threads = 1;
  std::function<void(std::function<void()>)> schedule;  // may be empty with one thread
};

namespace detail {

// Tells the core that its thread waits for another one.
inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // longer than `yield`, which most cores ignore
#endif
}

// Holds the chunks of one loop. Helpers that start late find nothing left, so the caller waits for
// chunks, never for helpers, and a busy pool cannot block it.
struct Loop {
  explicit Loop(int64_t chunks) : num_chunks(chunks) {}

  template <class Function>
  void work(Function const& function) {
    for (;;) {
      auto const chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= num_chunks) return;
      function(chunk);
      if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == num_chunks) {
        std::lock_guard<std::mutex> const lock(mutex);
        finished.notify_all();
      }
    }
  }

  // A blocked thread wakes up some 20 us after the last chunk, and most loops have less to wait
  // for. So this spins for about as long before it blocks.
  void wait() {
    constexpr int kSpins = 2000;
    for (int i = 0; i < kSpins; ++i) {
      if (has_ended()) return;
      pause();
    }
    std::unique_lock<std::mutex> lock(mutex);
    finished.wait(lock, [&] { return has_ended(); });
  }

  bool has_ended() const { return done.load(std::memory_order_acquire) == num_chunks; }

  int64_t const num_chunks;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};
  std::mutex mutex;
  std::condition_variable finished;
};

}  // namespace detail

// Calls function(chunk) for every chunk in [0, num_chunks), in any order, and returns when all have
// ended. The caller takes its share; a single chunk runs inline.
template <class Function>
void for_each_chunk(ThreadPool const& pool, int64_t num_chunks, Function const& function) {
  if (num_chunks <= 1 || pool.num_threads <= 1 || !pool.schedule) {
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) function(chunk);
    return;
  }
  auto const loop = std::make_shared<detail::Loop>(num_chunks);
  auto const helpers = std::min(pool.num_threads, num_chunks) - 1;
  for (int64_t i = 0; i < helpers; ++i) {
    // `function` outlives every chunk, and a late helper gets no chunk: the reference is safe.
    pool.schedule([loop, &function] { loop->work(function); });
  }
  loop->work(function);
  loop->wait();
}

// Calls second(chunk) for every chunk in [0, num_second), once first(chunk) has ended for all in
// [0, num_first). A helper takes chunks of both, because another one would start some 20 us later.
template <class First, class Second>
void for_each_chunk_twice(ThreadPool const& pool, int64_t num_first, First const& first,
                          int64_t num_second, Second const& second) {
  auto const most = std::max(num_first, num_second);
  if (most <= 1 || pool.num_threads <= 1 || !pool.schedule) {
    for (int64_t chunk = 0; chunk < num_first; ++chunk) first(chunk);
    for (int64_t chunk = 0; chunk < num_second; ++chunk) second(chunk);
    return;
  }
  struct Loops {
    Loops(int64_t in_first, int64_t in_second) : first(in_first), second(in_second) {}
    detail::Loop first, second;
  };
  auto const loops = std::make_shared<Loops>(num_first, num_second);
  // Chunks wait for no other thread, so neither does a helper for long.
  auto const work = [](Loops& loops, First const& first, Second const& second) {
    loops.first.work(first);
    loops.first.wait();
    loops.second.work(second);
  };
  auto const helpers = std::min(pool.num_threads, most) - 1;
  for (int64_t i = 0; i < helpers; ++i) {
    pool.schedule([loops, work, &first, &second] { work(*loops, first, second); });
  }
  work(*loops, first, second);
  loops->second.wait();
}

// Calls function(begin, end) on pieces of [0, count) of about `grain` items.
template <class Function>
void for_each_range(ThreadPool const& pool, int64_t count, int64_t grain,
                    Function const& function) {
  auto const chunks = (count + grain - 1) / grain;
  for_each_chunk(pool, chunks, [&](int64_t chunk) {
    function(chunk * grain, std::min(count, (chunk + 1) * grain));
  });
}

}  // namespace dynemb::cpu
