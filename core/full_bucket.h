// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/full_bucket.h: the claims of core/claim.h in a bucket without empty slots, made by one group
// alone.
//
// Who has all new keys of a bucket need not swap anything: it reads the bucket once and takes slots
// in its own copy. The copy is spread over the lanes, so that to find who goes first costs a look
// at a lane's own slots and a minimum over the lanes.
#pragma once

#include <cstdint>

#include "core/claim.h"
#include "core/macros.h"
#include "core/table_ref.h"

namespace dynemb {

// All members are for all lanes of the group together.
template <class Group>
class FullBucket {
 public:
  struct Taken {
    int place;           // -1 = refused
    bool won;            // not: an equal key has it already
    uint64_t displaced;  // the mark of the new key that had it, or 0
  };

  // Precondition: the bucket has no empty slot, and the lookup whose clock this is has touched
  // every row that it uses.
  DYNEMB_HD FullBucket(Group const& group, TableRef const& table, Bucket const& bucket,
                       uint64_t clock)
      : group_(group) {
    auto const ranking = Ranking(table, clock);
    DYNEMB_UNROLLED
    for (int i = 0; i < slots(); i += 2) {
      auto const scores = pair_at(bucket.scores, place(i));
      auto const keys = pair_at(bucket.keys, place(i));
      ranks_[i] = ranking.of(scores.first), ranks_[i + 1] = ranking.of(scores.second);
      keys_[i] = keys.first, keys_[i + 1] = keys.second;
    }
  }

  // No slot ranks below it: a mark of lower rank is not here and takes none.
  DYNEMB_HD uint64_t lowest_rank() const { return level_; }

  // The new key takes the slot that goes first, unless it has one already or ranks below it.
  DYNEMB_HD Taken claim(uint64_t mark) {
    auto const own = rank_of_mark(mark);
    auto there = -1;
    DYNEMB_UNROLLED
    for (int i = 0; i < slots(); ++i) there = ranks_[i] == own ? place(i) : there;
    auto const holders = group_.ballot(there >= 0);
    if (holders != 0) return {place_of(there, holders), false, 0};

    auto first = group_.min(first_key());
    if (first == kNothing) {
      find_level();
      first = group_.min(first_key());
    }
    if (level_ >= own) return {-1, false, 0};
    auto const mine = take(first, own);
    auto const taken = place_of(mine, group_.ballot(mine >= 0));
    auto const was_row = level_ <= kLastRankOfRows;
    rows_left_ += was_row ? 1 : 0;
    return {taken, true, was_row ? 0 : mark_of_rank(level_)};
  }

  // How many rows have left.
  DYNEMB_HD uint32_t rows_left() const { return rows_left_; }

 private:
  static constexpr int kMostSlots = kBucketCapacity / Group::kLeastSize;

  struct alignas(16) Pair {
    uint64_t first, second;
  };

  static DYNEMB_HD Pair pair_at(uint64_t const* words, int place) {
    return reinterpret_cast<Pair const*>(words)[place / 2];
  }

  DYNEMB_HD int slots() const { return kBucketCapacity / group_.size(); }
  // Two neighbours, then the next two after those of all other lanes.
  DYNEMB_HD int place(int i) const { return (i / 2 * group_.size() + group_.rank()) * 2 + i % 2; }

  // What the first of the lanes in `lanes` says.
  DYNEMB_HD int place_of(int place, uint64_t lanes) const {
    auto const said = group_.broadcast(static_cast<uint64_t>(place), lowest_bit(lanes));
    return static_cast<int>(said);
  }

  // Of this lane's slots on the level.
  DYNEMB_HD Key first_key() const {
    auto first = kNothing;
    DYNEMB_UNROLLED
    for (int i = 0; i < slots(); ++i) {
      auto const key = ranks_[i] == level_ ? keys_[i] : kNothing;
      first = key < first ? key : first;
    }
    return first;
  }

  DYNEMB_HD void find_level() {
    auto lowest = kNothing;
    DYNEMB_UNROLLED
    for (int i = 0; i < slots(); ++i) lowest = ranks_[i] < lowest ? ranks_[i] : lowest;
    level_ = group_.min(lowest);
  }

  // The place of this key on the level, if this lane has it, else -1. (That a slot that has been
  // taken keeps the old key does not matter: a mark is the only one of its rank.)
  DYNEMB_HD int take(Key key, uint64_t own) {
    auto taken = -1;
    DYNEMB_UNROLLED
    for (int i = 0; i < slots(); ++i) {
      auto const is_it = ranks_[i] == level_ && keys_[i] == key;
      taken = is_it ? place(i) : taken;
      ranks_[i] = is_it ? own : ranks_[i];
    }
    return taken;
  }

  Group const& group_;
  uint64_t ranks_[kMostSlots];
  Key keys_[kMostSlots];
  uint64_t level_ = 0;  // the lowest rank of a slot, or below it
  uint32_t rows_left_ = 0;
};

}  // namespace dynemb
