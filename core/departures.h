// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/departures.h: rows that full buckets evict and that must be kept, since a store below the
// table takes them (docs/decisions/stores.md).
//
// A shard has a ring: a note of each departed row, and a record of its bytes. An eviction first
// takes a place of the ring and writes the note. Without a place the row stays, so no row is ever
// lost. A later call, depart, copies the bytes (core/tiers/tier_args.h): they stay where they are
// until rows are promoted or updated.
//
// A row may also be held for some lookups. None of them evicts it.
//
// Such a table is the index part of a tiered one. Its states are the locations of rows, and until
// which lookup each row is held.
#pragma once

#include <cstdint>

#include "core/atomic.h"
#include "core/custom_score.h"
#include "core/macros.h"
#include "core/table_ref.h"

namespace dynemb {

constexpr int kLocationState = 0;
constexpr int kHeldState = 1;

// One departed row.
struct alignas(16) Departure {
  Key key;
  uint64_t score;  // the custom one, if the table has such
  int32_t slot;
  uint32_t location;  // of the slot, before a new key got it (core/tiers/tier_ref.h)
  uint32_t unused[2];
};
constexpr int kDepartureWords = sizeof(Departure) / 4;

// Words of the header, which stands before the first departure.
enum RingWord : int32_t {
  kRingCount = 0,  // departures that are noted
  kRingCopied,     // departures whose records are written
  kRingRefused,    // claims that found no place, since the latest depart
};

// Apart from TableRef, which every kernel takes.
struct Departures {
  uint32_t* ring;  // [1 + room, kDepartureWords], the header first; or null: rows are lost
  uint32_t room;
};

DYNEMB_HD Departure* departure_at(uint32_t* ring, uint32_t number) {
  return reinterpret_cast<Departure*>(ring) + 1 + number;
}

// Takes a place for a row that is about to be evicted. False: there is none, and the row stays.
// Called once for each row, by any number of threads; all departures are lost rows without a ring.
DYNEMB_HD bool note_departure(TableRef const& table, Departures const& departures, int32_t slot,
                              Entry const& row) {
  auto* const count = departures.ring + kRingCount;
  if (atomic_load(count) >= departures.room) return false;
  auto const number = fetch_add(count, 1u);
  if (number >= departures.room) {
    fetch_add(count, ~0u);
    return false;
  }
  auto const location = reinterpret_cast<uint32_t const*>(table.states[kLocationState])[slot];
  auto const score =
      table.policy == ScorePolicy::kCustomized ? *custom_score_at(table, slot) : row.score;
  *departure_at(departures.ring, number) = {row.key, score, slot, location, {0, 0}};
  return true;
}

DYNEMB_HD void count_ring_full(Departures const& departures, uint32_t claims) {
  if (claims != 0) fetch_add(departures.ring + kRingRefused, claims);
}

// Lookups are counted modulo 2^32, and a row is held for fewer than so many. So a number that was
// written long ago means nothing for nearly all of the lookups that follow.
constexpr uint32_t kMostHeld = 1u << 16;

// Does the row of a slot stay in the lookup of this number? 0: it was never held.
DYNEMB_HD bool is_held(TableRef const& table, int32_t slot, uint64_t lookup) {
  auto const until = reinterpret_cast<uint32_t const*>(table.states[kHeldState])[slot];
  return until != 0 && until - static_cast<uint32_t>(lookup) < kMostHeld;
}

// Which rows of a bucket may leave, beside what their ranks say. This is the policy of a table
// without a ring.
struct AllLeave {
  DYNEMB_HD bool stays(int /*place*/) const { return false; }
  DYNEMB_HD bool leaves(int /*place*/, Entry const& /*row*/) const { return true; }
};

// Of one claim in one bucket of a table with a ring, while no other thread claims there.
class RowsDepart {
 public:
  DYNEMB_HD RowsDepart(TableRef const& table, Departures const& departures, int64_t bucket,
                       uint64_t lookup)
      : table_(table),
        departures_(departures),
        first_(static_cast<int32_t>(bucket * kBucketCapacity)),
        lookup_(lookup) {}

  DYNEMB_HD bool stays(int place) const {
    return is_full_ || is_held(table_, first_ + place, lookup_);
  }

  // The row that goes first is about to be overwritten. False: it stays, and so do all others.
  DYNEMB_HD bool leaves(int place, Entry const& row) {
    if (note_departure(table_, departures_, first_ + place, row)) return true;
    count_ring_full(departures_, 1);
    is_full_ = true;
    return false;
  }

 private:
  TableRef const& table_;
  Departures const& departures_;
  int32_t first_;
  uint64_t lookup_;
  bool is_full_ = false;
};

}  // namespace dynemb
