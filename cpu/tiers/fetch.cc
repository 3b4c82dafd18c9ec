// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tiers/fetch.cc: the rows of an update: those in frames, and some more that come from home
// (core/tiers/tier_args.h).
#include <algorithm>
#include <vector>

#include "core/tiers/tier_args.h"
#include "cpu/table_ops.h"
#include "cpu/tiers/move_row.h"
#include "cpu/tiers/slots.h"
#include "cpu/tiers/tables.h"

namespace dynemb::cpu {
namespace {

// A position whose row is not in a frame waits with this, until its row is there.
constexpr int32_t kWaits = -1 - kLostPlace;

class Fetcher {
 public:
  Fetcher(FetchTable const& args, ThreadPool const& pool)
      : args_(args),
        table_(args.table),
        tier_(args.tier),
        pool_(pool),
        first_(*args.round == 0),
        checks_(args.keys != nullptr && !keeps_slots(args.table)) {}

  void run() {
    std::fill_n(args_.spilled, tier_.spill_rows, -1);
    auto const far = find_far();
    args_.counts[0] = 0;
    args_.counts[1] = static_cast<int32_t>(far.size());
    if (far.empty()) return;
    auto const size = static_cast<int64_t>(far.size());
    auto const begin = std::clamp<int64_t>(int64_t{*args_.round} * tier_.spill_rows, 0, size);
    auto const end = std::min(size, begin + tier_.spill_rows);
    args_.counts[0] = static_cast<int32_t>(end - begin);
    for_each_range(pool_, end - begin, 64, [&](int64_t from, int64_t to) {
      for (auto i = from; i < to; ++i) load(far[size_t(begin + i)], i);
    });
    count_in_tier(tier_, kTierUpdatedHome, uint64_t(end - begin));
    count_in_tier(tier_, kTierWrittenBack, uint64_t(end - begin));
    place_far(far, begin, end);
  }

 private:
  // Distinct slots whose row is in no frame, in order. All other places are known after this.
  std::vector<int32_t> find_far() {
    auto pieces = pieces_for(args_.num_ids);
    for_each_range(pool_, args_.num_ids, kSlotsPerPiece, [&](int64_t begin, int64_t end) {
      auto& far = pieces[size_t(begin / kSlotsPerPiece)];
      for (auto i = begin; i < end; ++i) {
        look_ahead(i, end);
        args_.places[i] = near_place(i);
        if (args_.places[i] == kWaits) far.push_back(args_.slots[i]);
      }
    });
    return distinct(pieces);
  }

  void look_ahead(int64_t i, int64_t end) const {
    auto const limit = num_slots(table_);
    if (i + kLocationsAhead < end)
      prefetch_location(tier_, args_.slots[i + kLocationsAhead], limit);
    if (i + kOwnersAhead >= end) return;
    auto const soon = args_.slots[i + kOwnersAhead];
    prefetch_owner(tier_, soon, limit);
    if (checks_ && is_live(soon, limit)) __builtin_prefetch(key_at(table_, soon));
    keep_prefetches();
  }

  int32_t near_place(int64_t i) const {
    auto const slot = args_.slots[i];
    if (slot < 0) return first_ ? std::max(slot, kNotAdmittedSlot) : -1;
    if (!is_live(slot, num_slots(table_)) || (checks_ && *key_at(table_, slot) != args_.keys[i])) {
      return first_ ? kLostPlace : -1;
    }
    auto const frame = frame_of(tier_, slot);
    if (frame < 0) return kWaits;
    if (!first_) return -1;
    set_bits(owner_word(tier_, slot, frame), kDirtyFrame);
    return static_cast<int32_t>(frame_row(tier_, slot / kBucketCapacity, frame));
  }

  void load(int32_t slot, int64_t spill) const {
    load_row(table_, tier_, slot, table_, first_spill_row(tier_, table_) + spill);
    tier_.location[slot] = kHomeLocation;
    args_.spilled[spill] = slot;
  }

  void place_far(std::vector<int32_t> const& far, int64_t begin, int64_t end) const {
    auto const first = far.begin() + begin, last = far.begin() + end;
    auto const spill = static_cast<int32_t>(first_spill_row(tier_, table_));
    for_each_range(pool_, args_.num_ids, kSlotsPerPiece, [&](int64_t from, int64_t to) {
      for (auto i = from; i < to; ++i) {
        if (args_.places[i] != kWaits) continue;
        auto const found = std::lower_bound(first, last, args_.slots[i]);
        auto const here = found != last && *found == args_.slots[i];
        args_.places[i] = here ? spill + static_cast<int32_t>(found - first) : -1;
      }
    });
  }

  FetchTable const& args_;
  TableRef const& table_;
  TierRef const& tier_;
  ThreadPool const& pool_;
  bool const first_;
  bool const checks_;
};

}  // namespace

void fetch(FetchArgs const& args, ThreadPool const& pool) {
  for_each_table(args, pool, [](FetchTable const& table, ThreadPool const& threads) {
    Fetcher(table, threads).run();
  });
}

}  // namespace dynemb::cpu
