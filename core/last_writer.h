// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/last_writer.h: of several positions of a batch that write to one slot, the last one does.
//
// Every position notes its slot in a small hash table, open addressing with linear probing. An
// entry belongs to the first slot that takes it and keeps the largest position noted for that slot,
// so the result does not depend on the order of threads. It is read when all positions are noted.
#pragma once

#include <cstdint>

#include "core/atomic.h"
#include "core/hash.h"
#include "core/macros.h"

namespace dynemb {

struct LastWriters {
  uint64_t* entries;  // zeros at first; or null, where no slot comes twice
  uint64_t mask;      // of their number, a power of two

  // For so many positions: at most half of the entries are taken.
  static uint64_t entries_for(int64_t positions) {
    uint64_t entries = 2;
    while (entries < 2 * static_cast<uint64_t>(positions)) entries *= 2;
    return entries;
  }
};

// Packs a slot, so that the word is never 0, and a position.
DYNEMB_HD uint64_t writer_of(int32_t slot, int64_t position) {
  return (static_cast<uint64_t>(slot) + 1) << 32 | static_cast<uint32_t>(position);
}

DYNEMB_HD bool same_slot(uint64_t one, uint64_t other) { return one >> 32 == other >> 32; }

DYNEMB_HD void note_writer(LastWriters const& writers, int32_t slot, int64_t position) {
  auto const writer = writer_of(slot, position);
  for (auto i = hash_number(static_cast<uint64_t>(slot));; ++i) {
    auto* const entry = writers.entries + (i & writers.mask);
    auto seen = atomic_load(entry);
    if (seen == 0) seen = compare_and_swap(entry, 0, writer);
    if (seen == 0) return;
    if (!same_slot(seen, writer)) continue;
    if (seen < writer) store_max(entry, writer);
    return;
  }
}

// Precondition: the position has been noted, and all others too.
DYNEMB_HD bool is_last_writer(LastWriters const& writers, int32_t slot, int64_t position) {
  auto const writer = writer_of(slot, position);
  for (auto i = hash_number(static_cast<uint64_t>(slot));; ++i) {
    auto const seen = writers.entries[i & writers.mask];
    if (same_slot(seen, writer)) return seen == writer;
  }
}

}  // namespace dynemb
