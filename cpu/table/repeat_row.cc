// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "cpu/table/repeat_row.h"

#include <algorithm>
#include <cstring>

#include "cpu/loops/huge_pages.h"

namespace dynemb::cpu {

void repeat_row(char const* row, int64_t row_bytes, char* rows, int64_t num_rows,
                ThreadPool const& pool) {
  constexpr int64_t kBytesPerChunk = int64_t{4} << 20;
  begin_in_huge_pages(rows, static_cast<size_t>(num_rows * row_bytes));
  auto const bytes = static_cast<size_t>(row_bytes);
  auto const is_zero = std::all_of(row, row + bytes, [](char byte) { return byte == 0; });
  auto const grain = std::max<int64_t>(1, kBytesPerChunk / row_bytes);
  for_each_range(pool, num_rows, grain, [&](int64_t begin, int64_t end) {
    auto* const first = rows + begin * row_bytes;
    if (is_zero) {
      memset(first, 0, static_cast<size_t>(end - begin) * bytes);
      return;
    }
    for (auto i = begin; i < end; ++i) memcpy(rows + i * row_bytes, row, bytes);
  });
}

}  // namespace dynemb::cpu
