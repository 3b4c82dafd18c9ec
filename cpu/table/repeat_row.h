// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/table/repeat_row.h: the arrays of a new table: one row again and again, in huge pages.
#pragma once

#include <cstdint>

#include "cpu/loops/thread_pool.h"

namespace dynemb::cpu {

// Writes `row` to each of `num_rows` rows, none of which is written yet.
void repeat_row(char const* row, int64_t row_bytes, char* rows, int64_t num_rows,
                ThreadPool const& pool);

}  // namespace dynemb::cpu
