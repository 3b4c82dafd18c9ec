// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tiers/promote.cc: brings rows from home into frames (core/tiers/tier_args.h).
#include <algorithm>
#include <atomic>
#include <vector>

#include "core/tiers/tier_args.h"
#include "cpu/table_ops.h"
#include "cpu/tiers/move_row.h"
#include "cpu/tiers/pages.h"
#include "cpu/tiers/slots.h"
#include "cpu/tiers/tables.h"

namespace dynemb::cpu {
namespace {

constexpr size_t kRowsPerPiece = 64;
constexpr int kBucketsAhead = 4, kScoresAhead = 2;

class Promoter {
 public:
  Promoter(PromoteTable const& args, ThreadPool const& pool)
      : args_(args), table_(args.table), tier_(args.tier), pool_(pool) {}

  void run() {
    args_.counts[0] = args_.counts[1] = 0;
    auto const newcomers = find_newcomers();
    if (!newcomers.empty()) {
      mark_used(newcomers);
      auto const pieces = cut(newcomers);
      for_each_chunk(pool_, static_cast<int64_t>(pieces.size()) - 1, [&](int64_t p) {
        bring(newcomers.data() + pieces[size_t(p)], newcomers.data() + pieces[size_t(p) + 1]);
      });
    }
    auto const leaving = std::min<int64_t>(leaving_.load(), tier_.spill_rows);
    auto const arriving = arriving_.load();
    args_.counts[0] = static_cast<int32_t>(leaving);
    args_.counts[1] = static_cast<int32_t>(arriving);
    // What stands behind the lists is not read; it is the same in every run.
    std::fill(args_.spilled + leaving, args_.spilled + args_.num_ids, -1);
    std::fill(args_.rows + leaving, args_.rows + args_.num_ids, -1);
    std::fill(args_.arriving + arriving, args_.arriving + args_.num_ids, -1);
    std::fill(args_.into + arriving, args_.into + args_.num_ids, -1);
  }

 private:
  // Returns the distinct slots without a frame, in order. Counts hits and misses. `into` says of
  // each position which frame its slot has, until rows arrive.
  std::vector<int32_t> find_newcomers() {
    auto pieces = pieces_for(args_.num_ids);
    std::atomic<uint64_t> hits{0}, misses{0};
    for_each_range(pool_, args_.num_ids, kSlotsPerPiece, [&](int64_t begin, int64_t end) {
      auto& homeless = pieces[size_t(begin / kSlotsPerPiece)];
      hits += find_rows(begin, end, homeless);
      misses += homeless.size();
    });
    if (args_.purpose == Promotion::kLookup) {
      count_in_tier(tier_, kTierHits, hits);
      count_in_tier(tier_, kTierMisses, misses);
    }
    return distinct(pieces);
  }

  // Returns how many of these positions have a frame, and adds the slots of the others.
  uint64_t find_rows(int64_t begin, int64_t end, std::vector<int32_t>& homeless) const {
    auto const limit = num_slots(table_);
    uint64_t hits = 0;
    for (auto i = begin; i < end; ++i) {
      if (i + kLocationsAhead < end)
        prefetch_location(tier_, args_.slots[i + kLocationsAhead], limit);
      auto const slot = args_.slots[i];
      auto const live = is_live(slot, limit);
      auto const row = live ? located_row(tier_, slot) : -1;
      args_.into[i] = static_cast<int32_t>(row);
      if (row >= 0) {
        ++hits;
      } else if (live) {
        homeless.push_back(slot);
      }
    }
    return hits;
  }

  // Frames of the call's own rows keep their owners: marks them in the buckets of newcomers.
  void mark_used(std::vector<int32_t> const& newcomers) const {
    std::vector<uint8_t> changes(size_t(table_.local_buckets), 0);
    for (auto const slot : newcomers) changes[size_t(slot / kBucketCapacity)] = 1;
    for_each_range(pool_, args_.num_ids, kSlotsPerPiece, [&](int64_t begin, int64_t end) {
      for (auto i = begin; i < end; ++i) {
        auto const row = args_.into[i];
        if (row < 0 || changes[size_t(args_.slots[i] / kBucketCapacity)] == 0) continue;
        set_bits(tier_.owners + row, kTakenFrame);
      }
    });
  }

  void unmark(int64_t bucket) const {
    auto* const owners = tier_.owners + frame_row(tier_, bucket, 0);
    for (int frame = 0; frame < tier_.frames; ++frame) owners[frame] &= ~kTakenFrame;
  }

  // Cuts slots into pieces of whole buckets; returns where they begin, and the end.
  static std::vector<size_t> cut(std::vector<int32_t> const& slots) {
    std::vector<size_t> begins{0};
    for (size_t i = 1; i < slots.size(); ++i) {
      auto const same = slots[i] / kBucketCapacity == slots[i - 1] / kBucketCapacity;
      if (!same && i - begins.back() >= kRowsPerPiece) begins.push_back(i);
    }
    begins.push_back(slots.size());
    return begins;
  }

  void bring(int32_t const* begin, int32_t const* end) {
    FrameChoice choices[kMostFrames];
    int num_choices = 0, given = 0;
    int64_t bucket = -1;
    uint64_t promoted = 0, bypassed = 0;
    for (auto const* slot = begin; slot != end; ++slot) {
      if (*slot / kBucketCapacity != bucket) {
        bucket = *slot / kBucketCapacity;
        num_choices = find_choices(bucket, choices);
        unmark(bucket);
        given = 0;
        look_ahead(slot, end);
      }
      if (given < num_choices) put_first(choices + given, choices + num_choices);
      auto const brought = given < num_choices && bring_one(*slot, choices[given]);
      given += brought ? 1 : 0;
      brought ? ++promoted : ++bypassed;
    }
    auto const lookup = args_.purpose == Promotion::kLookup;
    count_in_tier(tier_, lookup ? kTierPromoted : kTierPrefetched, promoted);
    count_in_tier(tier_, kTierBypassed, bypassed);
  }

  // The owners and places of a bucket that comes soon, and the scores of the owners of one that
  // comes sooner: each frame of a bucket costs two loads from memory.
  void look_ahead(int32_t const* slot, int32_t const* end) const {
    auto const now = *slot / kBucketCapacity;
    int64_t next = -1;
    for (int ahead = 0; ahead < kBucketsAhead && slot != end; ++slot) {
      auto const bucket = *slot / kBucketCapacity;
      if (bucket == now || bucket == next) continue;
      next = bucket;
      auto const* const owners = tier_.owners + frame_row(tier_, bucket, 0);
      if (++ahead == kBucketsAhead) {
        __builtin_prefetch(owners);
        keep_prefetches();
        return prefetch_bytes<0>(tier_.location + bucket * kBucketCapacity, 4 * kBucketCapacity);
      }
      if (ahead != kScoresAhead) continue;
      for (int frame = 0; frame < tier_.frames; ++frame) {
        auto const owner = bucket * kBucketCapacity + (owners[frame] & kOwnerMask);
        __builtin_prefetch(score_at(table_, static_cast<int32_t>(owner)));
        keep_prefetches();
      }
    }
  }

  // Few of the choices are needed: they are not sorted.
  static void put_first(FrameChoice* begin, FrameChoice* end) {
    std::swap(*begin, *std::min_element(begin, end, goes_before));
  }

  int find_choices(int64_t bucket, FrameChoice* choices) const {
    int count = 0;
    for (int frame = 0; frame < tier_.frames; ++frame) {
      auto const owner = owner_of(tier_, bucket, frame);
      auto const word = atomic_load(tier_.owners + frame_row(tier_, bucket, frame));
      if (owner >= 0 && (word & kTakenFrame) != 0) continue;
      auto const score = owner < 0 ? 0 : *score_at(table_, owner);
      choices[count++] = {owner, score, frame};
    }
    return count;
  }

  bool bring_one(int32_t slot, FrameChoice const& victim) {
    auto const owned = victim.owner >= 0;
    if (owned && is_packed(table_.policy) && victim.score > *score_at(table_, slot)) return false;
    auto const fresh = is_fresh(tier_, slot);
    if (owned && !send_home(victim, fresh)) return false;
    auto const row = frame_row(tier_, slot / kBucketCapacity, victim.frame);
    if (fresh) {
      initialize_slot(ScalarGroup{}, table_, *key_at(table_, slot), row);
    } else {
      auto const number = arriving_.fetch_add(1, std::memory_order_relaxed);
      args_.arriving[number] = slot;
      args_.into[number] = static_cast<int32_t>(row);
    }
    tier_.location[slot] = static_cast<uint32_t>(victim.frame) + 1;
    auto const owner = static_cast<uint32_t>(slot % kBucketCapacity);
    tier_.owners[row] = owner | (fresh ? kDirtyFrame : 0);
    return true;
  }

  // The owner of a frame loses it. False where it must be written home and there is no way.
  // `at_once`: the frame is written before swap_rows reads it.
  bool send_home(FrameChoice const& victim, bool at_once) {
    auto row = frame_row(tier_, victim.owner / kBucketCapacity, victim.frame);
    if ((tier_.owners[row] & kDirtyFrame) != 0 && *score_at(table_, victim.owner) != kEmptyScore) {
      auto const number = leaving_.fetch_add(1, std::memory_order_relaxed);
      if (number >= tier_.spill_rows) return false;
      if (at_once) {
        auto const spill = first_spill_row(tier_, table_) + number;
        copy_row_between(table_, row, table_, spill);
        row = spill;
      }
      args_.spilled[number] = victim.owner;
      args_.rows[number] = static_cast<int32_t>(row);
      count_in_tier(tier_, kTierWrittenBack, 1);
    }
    tier_.location[victim.owner] = kHomeLocation;
    return true;
  }

  PromoteTable const& args_;
  TableRef const& table_;
  TierRef const& tier_;
  ThreadPool const& pool_;
  std::atomic<int64_t> leaving_{0}, arriving_{0};  // entries of the lists
};

}  // namespace

void promote(PromoteArgs const& args, ThreadPool const& pool) {
  prefer_pages(args);
  for_each_table(args, pool, [](PromoteTable const& table, ThreadPool const& threads) {
    Promoter(table, threads).run();
  });
}

}  // namespace dynemb::cpu
