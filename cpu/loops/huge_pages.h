// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/huge_pages.h: large arrays lie in pages of 2 MiB.
//
// Rows of a batch lie in as many pages as there are rows. With pages of 4 KiB each of them is a
// miss of the translation cache. The walk through the page tables costs more than the row: on a Zen
// 5 virtual machine rows of 64 floats take 22 ns instead of 9.
#pragma once

#include <cstddef>

#include "core/table_ref.h"

namespace dynemb::cpu {

// For a new array that is not written yet: it is made of huge pages as it is written, which takes
// half the time of small ones. It is a hint and cannot fail, like all of this file: where the
// system has no such pages, or they are switched off, nothing happens.
void begin_in_huge_pages(void const* address, size_t bytes);

// Moves other arrays, a page of one call at a time, if calls see them again and again; one that is
// seen once only (a table that was copied) stays as it is. A page takes 0.5 to 4 ms, and longer on
// a busy machine. So pages of the process move in a twentieth of its time at most.
void prefer_huge_pages(void const* address, size_t bytes);
void prefer_huge_pages(TableRef const& table);  // all of its arrays

}  // namespace dynemb::cpu
