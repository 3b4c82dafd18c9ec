// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/row_ops.h: loops over the columns of one row, which the compiler vectorises.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/row.h"
#include "cpu/loops/columns.h"

#ifdef DYNEMB_X86
#include <xmmintrin.h>
#endif

namespace dynemb::cpu {

constexpr int64_t kLineBytes = 64;

inline int64_t bytes_of(ValueType type) { return type == ValueType::kFloat32 ? 4 : 2; }

// GCC removes a loop or function of nothing but prefetches as empty, unless this stands in it.
inline void keep_prefetches() { __asm__ volatile(""); }

// Into which cache a line is brought.
enum class Cache { kFirst, kSecond };

template <Cache cache>
void prefetch_line(char const* address) {
#ifdef DYNEMB_X86
  constexpr int kSecondCache = 1;  // prefetcht2: on Zen 4 a little faster than prefetcht1
#else
  constexpr int kSecondCache = 2;
#endif
  __builtin_prefetch(address, 0, cache == Cache::kFirst ? 3 : kSecondCache);
}

// Whether rows of so many bytes begin and end within lines, one after the other, so that they may
// touch a line more than they fill.
constexpr bool straddles(int64_t bytes) {
  return (bytes & (kLineBytes - 1)) != 0 && (bytes & (bytes - 1)) != 0;
}

template <Cache cache>
void prefetch_bytes(void const* address, int64_t bytes) {
  auto const* const first = static_cast<char const*>(address);
#pragma GCC unroll 4
  for (int64_t offset = 0; offset < bytes; offset += kLineBytes) {
    prefetch_line<cache>(first + offset);
    keep_prefetches();
  }
  if (straddles(bytes)) {
    prefetch_line<cache>(first + bytes - 1);
    keep_prefetches();
  }
}

// Calls body(prefetch), where prefetch(address) prefetches so many bytes. For a few whole lines
// these are as many instructions and no loop.
template <Cache cache, class Body>
void with_prefetch(int64_t bytes, Body const& body) {
  auto const with_lines = [&](auto lines) {
    body([](char const* first) {
#pragma GCC unroll 8
      for (int i = 0; i < decltype(lines)::value; ++i) prefetch_line<cache>(first + i * kLineBytes);
      keep_prefetches();
    });
  };
  switch (bytes < kLineBytes && !straddles(bytes) ? kLineBytes : bytes) {
    case 1 * kLineBytes:
      return with_lines(std::integral_constant<int, 1>{});
    case 2 * kLineBytes:
      return with_lines(std::integral_constant<int, 2>{});
    case 4 * kLineBytes:
      return with_lines(std::integral_constant<int, 4>{});
    case 8 * kLineBytes:
      return with_lines(std::integral_constant<int, 8>{});
    default:
      return body([bytes](char const* first) { prefetch_bytes<cache>(first, bytes); });
  }
}

template <Cache cache>
void prefetch_states(TableRef const& table, int64_t slot) {
  for (int s = 0; s < table.num_states; ++s) {
    auto const bytes = int64_t{bytes_of_state(table, s)};
    prefetch_bytes<cache>(reinterpret_cast<char const*>(table.states[s]) + slot * bytes, bytes);
  }
}

template <Isa isa, class O>
void scale_row(float const* sum, float factor, int32_t dim, O* out) {
  map_columns<isa>(sum, dim, out, [&](auto* values) { *values *= factor; });
}

template <class O>
void fill_zeros(O* out, int32_t dim) {
  for (int32_t i = 0; i < dim; ++i) from_float(0.0f, out + i);
}

// Past the caches, for outputs that are larger than these anyway: a line that is written in full
// need not be read first.
inline bool stream_row(float const* row, int32_t dim, float* out) {
#ifdef DYNEMB_X86
  if (dim % 4 != 0 || reinterpret_cast<uintptr_t>(out) % 16 != 0) return false;
  for (int32_t i = 0; i < dim; i += 4) _mm_stream_ps(out + i, _mm_loadu_ps(row + i));
  return true;
#else
  static_cast<void>(row), static_cast<void>(dim), static_cast<void>(out);
  return false;
#endif
}

template <class V, class O>
bool stream_row(V const*, int32_t, O*) {
  return false;
}

// What was streamed is visible to other threads after this.
inline void end_streams() {
#ifdef DYNEMB_X86
  _mm_sfence();
#endif
}

template <Isa isa, class V, class O>
void copy_row(V const* row, int32_t dim, O* out, bool streams) {
  if (streams && stream_row(row, dim, out)) return;
  map_columns<isa>(row, dim, out, [](auto*) {});
}

}  // namespace dynemb::cpu
