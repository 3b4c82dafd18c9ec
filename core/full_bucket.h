// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/full_bucket.h: the claims of core/claim.h in a bucket without empty slots, made by one group
// alone.
//
// A group that has all new keys of a bucket needs no compare-and-swap: it reads the bucket once and
// takes slots in its own copy. The copy is spread over the lanes. To find the first slot in rank,
// each lane looks at its own slots, and a minimum over the lanes follows.
#pragma once

#include <cstdint>

#include "core/claim.h"
#include "core/group.h"
#include "core/macros.h"
#include "core/table_ref.h"

namespace dynemb {

// All members are for all lanes of the group together. `kMayBeGiven`: of a table whose rows may
// have custom scores (core/custom_score.h). They cost registers, which a GPU has none to spare of.
template <class Group, bool kMayBeGiven>
class FullBucket {
 public:
  struct Taken {
    int place;           // -1 = refused
    bool won;            // not: an equal key has it already
    uint64_t displaced;  // the mark of the new key that had it, or 0
  };

  // Precondition: the bucket has no empty slot, and the lookup of the ranking has touched every
  // row that it uses. What was empty before it has a claim (claim_empty). `entries`: those of the
  // bucket, or a copy of which each lane reads only its own (entry i of n lanes: lane i % n).
  // `leaving`: which rows stay whatever their rank, as AllLeave.
  template <class Leaving = AllLeave>
  DYNEMB_HD FullBucket(Group const& group, TableRef const& table, Bucket const& bucket,
                       Entry const* entries, Ranking const& ranking, Leaving const& leaving = {})
      : group_(group),
        entries_(bucket.entries),
        by_clock_(ranking.by == Ranking::By::kCustomScore) {
    auto some_stay = false;
    DYNEMB_UNROLLED
    for (int i = 0; i < slots(); ++i) {
      auto const entry = entries[place(i)];
      ranks_[i] = leaving.stays(place(i)) ? kNeverGoes
                  : kMayBeGiven           ? ranking.of_row(entry.score, bucket, place(i))
                                          : ranking.of_score(entry.score);
      keys_[i] = entry.key;
      some_stay |= ranks_[i] == kNeverGoes;
    }
    if (some_stay) rank_claimed(bucket, table.hash);
    find_first();
  }

  // Not below that of any slot: a mark of lower rank is not here and takes none.
  DYNEMB_HD uint64_t lowest_rank() {
    find_first_again();
    return group_.min(first_rank_);
  }

  struct NoNote {
    static constexpr bool kMayRefuse = false;
    DYNEMB_HD bool operator()(int /*place*/, Key /*key*/) const { return true; }
  };

  // The new key takes the slot that goes first, unless it has one already or ranks below it. One
  // lane calls note(place, key) for a row that is about to be evicted. Where it returns false, that
  // row stays and so do all others.
  template <class Note = NoNote>
  DYNEMB_HD Taken claim(uint64_t mark, Note const& note = {}) {
    auto const own = rank_of_mark(mark);
    auto there = -1;
    DYNEMB_UNROLLED
    for (int i = 0; i < slots(); ++i) there = ranks_[i] == own ? place(i) : there;
    auto const holders = group_.ballot(there >= 0);
    if (holders != 0) return {place_of(there, holders), false, 0};

    for (;;) {
      find_first_again();
      auto const rank = group_.min(first_rank_);
      if (rank >= own) {
        kept_ += keeps_rows_ ? 1 : 0;
        return {-1, false, 0};
      }
      auto goes = first_rank_ == rank;
      auto lanes = group_.ballot(goes);
      if ((lanes & (lanes - 1)) != 0) {
        if (leaves_by_clock(rank)) {
          auto const clock = group_.min(goes ? clock_of(first_) : kNothing);
          goes = goes && clock_of(first_) == clock;
        }
        auto const key = group_.min(goes ? first_key_ : kNothing);
        goes = goes && first_key_ == key;
        lanes = group_.ballot(goes);
      }
      auto const taken = place_of(place(first_), lanes);
      auto const was_row = rank <= kLastRankOfRows;
      auto const left = !(goes && was_row) || note(place(first_), first_key_);
      if constexpr (Note::kMayRefuse) {
        if (group_.ballot(!left) != 0) {
          keep_rows();
          continue;
        }
      }
      if (goes) take_first(own);
      rows_left_ += was_row ? 1 : 0;
      kept_ += keeps_rows_ ? 1 : 0;
      return {taken, true, was_row ? 0 : mark_of_rank(rank)};
    }
  }

  // How many rows were evicted.
  DYNEMB_HD uint32_t rows_left() const { return rows_left_; }

  // Whether the rows that are left stay, since a note was refused.
  DYNEMB_HD bool keeps_rows() const { return keeps_rows_; }

  // How many claims found that. Each costs a key its place, the claiming one or another new one.
  DYNEMB_HD uint32_t kept() const { return kept_; }

 private:
  static constexpr int kMostSlots = kBucketCapacity / Group::kLeastSize;

  DYNEMB_HD int slots() const { return kBucketCapacity / group_.size(); }
  DYNEMB_HD int place(int i) const { return i * group_.size() + group_.rank(); }

  // What the first of the lanes in `lanes` says.
  DYNEMB_HD int place_of(int place, uint64_t lanes) const {
    auto const said = group_.broadcast(static_cast<uint64_t>(place), lowest_bit(lanes));
    return static_cast<int>(said);
  }

  // The score of a new key that has a slot already is the clock's, as if it never went.
  DYNEMB_HD void rank_claimed(Bucket const& bucket, HashFactors hash) {
    DYNEMB_UNROLLED
    for (int i = 0; i < slots(); ++i) {
      if (ranks_[i] != kNeverGoes || !was_empty(bucket, place(i))) continue;
      ranks_[i] = rank_of_mark(mark_of(hash_key(keys_[i], hash)));
    }
  }

  // Returns whether rows of this rank leave by clock, then by key.
  DYNEMB_HD bool leaves_by_clock(uint64_t rank) const {
    return kMayBeGiven && by_clock_ && rank <= kLastRankOfRows;
  }

  // The row must have its slot still. The clock is read again, since only custom scores tie often.
  DYNEMB_HD uint64_t clock_of(int i) const { return entries_[place(i)].score; }

  // Compares two slots of this lane with one rank: does `i` leave before the first one so far?
  DYNEMB_HD bool is_before_first(int i) const {
    if (leaves_by_clock(first_rank_)) {
      auto const own = clock_of(i), other = clock_of(first_);
      if (own != other) return own < other;
    }
    return keys_[i] < first_key_;
  }

  // A lane looks for the lowest rank among its own slots.
  DYNEMB_HD void find_first() {
    first_ = 0, first_rank_ = ranks_[0], first_key_ = keys_[0];
    DYNEMB_UNROLLED
    for (int i = 1; i < slots(); ++i) {
      auto const sooner =
          ranks_[i] < first_rank_ || (ranks_[i] == first_rank_ && is_before_first(i));
      first_ = sooner ? i : first_;
      first_rank_ = sooner ? ranks_[i] : first_rank_;
      first_key_ = sooner ? keys_[i] : first_key_;
    }
  }

  DYNEMB_HD void keep_rows() {
    DYNEMB_UNROLLED
    for (int i = 0; i < slots(); ++i) {
      ranks_[i] = ranks_[i] <= kLastRankOfRows ? kNeverGoes : ranks_[i];
    }
    keeps_rows_ = true;
    first_ = -1;
  }

  // Not before the next claim: in many buckets one key is all.
  DYNEMB_HD void find_first_again() {
    if (first_ < 0) find_first();
  }

  // A mark is the only one of its rank: that its key stays the old one does not matter.
  DYNEMB_HD void take_first(uint64_t own) {
    DYNEMB_UNROLLED
    for (int i = 0; i < slots(); ++i) ranks_[i] = i == first_ ? own : ranks_[i];
    first_ = -1;
  }

  Group const& group_;
  Entry const* entries_;
  bool by_clock_;
  uint64_t ranks_[kMostSlots] = {};
  Key keys_[kMostSlots] = {};
  // The slot of this lane that goes first; -1 = not known.
  int first_;
  uint64_t first_rank_;
  Key first_key_;
  uint32_t rows_left_ = 0;
  uint32_t kept_ = 0;
  bool keeps_rows_ = false;
};

}  // namespace dynemb
