// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0
#include "cpu/hash_ids.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "core/macros.h"
#include "cpu/loops/isa.h"
#include "cpu/loops/thread_pool.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;  // values a chunk: some hundred microseconds
constexpr int64_t kMostThreads = 64;

// Calls function(begin, end) on pieces of [0, count), on threads that end with the call. A thread
// takes some 20 microseconds to begin, so a few chunks stay with the caller.
template <class Function>
void on_all_cores(int64_t count, Function const& function) {
  auto const chunks = (count + kGrain - 1) / kGrain;
  auto const cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  ThreadPool pool;
  pool.num_threads = std::min({cores, chunks / 2, kMostThreads});
  pool.schedule = [&](std::function<void()> work) {
    try {
      threads.emplace_back(std::move(work));
    } catch (std::system_error const&) {  // no more threads to be had: the caller does it all
    }
  };
  for_each_range(pool, count, kGrain, function);
  for (auto& each : threads) each.join();
}

// Code points as UTF-8 into room for four bytes each; returns the end, null at a number that is no
// character (a half of a surrogate pair, or above 0x10ffff).
unsigned char* to_utf8(uint32_t const* text, int64_t length, unsigned char* out) {
  auto const put = [&](uint32_t byte) { *out++ = static_cast<unsigned char>(byte); };
  for (int64_t i = 0; i < length; ++i) {
    auto const c = text[i];
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xc0 | c >> 6), put(0x80 | (c & 63));
    } else if (c < 0x10000) {
      if (c >= 0xd800 && c < 0xe000) return nullptr;
      put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
    } else {
      if (c > 0x10ffff) return nullptr;
      put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 63));
      put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
    }
  }
  return out;
}

template <class Value>
int64_t length_without_zeros(Value const* data, int64_t length) {
  while (length > 0 && data[length - 1] == 0) --length;
  return length;
}

}  // namespace

void hash_int64s(SipKey const& key, int64_t const* values, int64_t count, int64_t* ids) {
  on_all_cores(count, [&](int64_t begin, int64_t end) {
    with_isa([&](auto) {
      DYNEMB_INDEPENDENT
      for (int64_t i = begin; i < end; ++i) ids[i] = hash_int64(key, values[i]);
    });
  });
}

void hash_uint64s(SipKey const& key, uint64_t const* values, int64_t count, int64_t* ids) {
  on_all_cores(count, [&](int64_t begin, int64_t end) {
    with_isa([&](auto) {
      DYNEMB_INDEPENDENT
      for (int64_t i = begin; i < end; ++i) ids[i] = hash_uint64(key, values[i]);
    });
  });
}

template <class Offset>
bool hash_between_offsets(SipKey const& key, Bytes data, Offset const* offsets, int64_t count,
                          int64_t* ids) {
  if (count == 0) return true;
  if (offsets[0] < 0 || static_cast<uint64_t>(offsets[count]) > data.size) return false;
  for (int64_t i = 0; i < count; ++i) {
    if (offsets[i] > offsets[i + 1]) return false;
  }
  on_all_cores(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      auto const size = static_cast<size_t>(offsets[i + 1] - offsets[i]);
      ids[i] = hash_bytes(key, size == 0 ? nullptr : data.data + offsets[i], size);
    }
  });
  return true;
}

template bool hash_between_offsets(SipKey const&, Bytes, int32_t const*, int64_t, int64_t*);
template bool hash_between_offsets(SipKey const&, Bytes, int64_t const*, int64_t, int64_t*);

void hash_fixed_bytes(SipKey const& key, unsigned char const* data, int64_t width,
                      bool strips_zeros, int64_t count, int64_t* ids) {
  on_all_cores(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      auto const* value = data + i * width;
      auto const length = strips_zeros ? length_without_zeros(value, width) : width;
      ids[i] = hash_bytes(key, value, static_cast<size_t>(length));
    }
  });
}

int64_t hash_fixed_text(SipKey const& key, uint32_t const* data, int64_t width, int64_t count,
                        int64_t* ids) {
  std::atomic<int64_t> first_bad{count};
  on_all_cores(count, [&](int64_t begin, int64_t end) {
    std::vector<unsigned char> room(static_cast<size_t>(4 * width));
    for (int64_t i = begin; i < end; ++i) {
      auto const* value = data + i * width;
      auto const* last = to_utf8(value, length_without_zeros(value, width), room.data());
      if (last == nullptr && width > 0) {
        auto known = first_bad.load();
        while (i < known && !first_bad.compare_exchange_weak(known, i)) {
        }
        return;
      }
      ids[i] = hash_bytes(key, room.data(), static_cast<size_t>(last - room.data()));
    }
  });
  return first_bad == count ? -1 : first_bad.load();
}

void hash_spans(SipKey const& key, Bytes const* values, int64_t count, int64_t* ids) {
  on_all_cores(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (values[i].data != nullptr) ids[i] = hash_bytes(key, values[i].data, values[i].size);
    }
  });
}

}  // namespace dynemb::cpu
