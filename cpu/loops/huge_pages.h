// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/huge_pages.h: large arrays are moved to pages of 2 MiB.
//
// Rows of a batch lie in as many pages as there are rows. With pages of 4 KiB each of them is a
// miss of the translation cache. The walk through the page tables costs more than the row: on a Zen
// 5 virtual machine rows of 64 floats take 22 ns instead of 9.
#pragma once

#include <cstddef>

#include "core/table_ref.h"

namespace dynemb::cpu {

// Moves the arrays of one call to huge pages. An array is moved if calls see it again and again, as
// a table that is updated in place; an array that is seen once only (a table that was copied) is
// not. A call moves some pages and later calls the rest, so no step takes long. It is a hint and
// cannot fail: where the system has no such pages, or they are switched off, nothing happens.
class HugePages {
 public:
  void prefer(void const* address, size_t bytes);
  void prefer(TableRef const& table);  // all of its arrays

 private:
  size_t pages_left_ = 32;  // 64 MiB: 10 to 100 ms
};

}  // namespace dynemb::cpu
