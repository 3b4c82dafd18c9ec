// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/promotions.cc: random promotions and fetches, against what core/tiers/tier_args.h says
// of them, told slot by slot.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/score.h"
#include "core/slot.h"
#include "core/tiers/tier_args.h"
#include "tests/fuzz/tier.h"

namespace dynemb::fuzz {
namespace {

// The frames that a promotion should assign, if there are spill rows enough.
struct Promoted {
  std::map<int64_t, int64_t> frame_of;  // of each slot that comes
  std::map<int64_t, int64_t> left;      // of each slot that loses a frame
  std::set<int64_t> written;            // those of `left` that are written home
  int64_t bypassed = 0;
};

class PromotionModel {
 public:
  PromotionModel(Tier const& before, std::set<int64_t> const& used) : tier_(before), used_(used) {
    int64_t bucket = -1;
    for (auto const slot : used) {
      if (tier_.frame_of(slot) >= 0) continue;
      if (slot / kBucketCapacity != bucket) {
        bucket = slot / kBucketCapacity;
        find_choices(bucket);
      }
      if (!give_frame(slot)) ++found_.bypassed;
    }
  }

  Promoted const& found() const { return found_; }

 private:
  uint64_t score(int64_t slot) const { return tier_.table->entry(slot).score; }

  // Empty frames are chosen first, then those of the lowest score.
  void find_choices(int64_t bucket) {
    choices_.clear();
    for (int64_t row = bucket * tier_.frames; row < (bucket + 1) * tier_.frames; ++row) {
      auto const slot = bucket * kBucketCapacity + (tier_.owner_word(row) & kOwnerMask);
      auto const owner = tier_.frame_of(slot) == row ? slot : -1;
      if (used_.count(owner) > 0) continue;
      choices_.insert({owner >= 0, owner >= 0 ? score(owner) : 0, row, owner});
    }
  }

  bool give_frame(int64_t slot) {
    if (choices_.empty()) return false;
    auto const [owned, lowest, row, owner] = *choices_.begin();
    auto const packed = is_packed(static_cast<ScorePolicy>(tier_.table->policy));
    if (owned && packed && lowest > score(slot)) return false;
    choices_.erase(choices_.begin());
    found_.frame_of[slot] = row;
    if (!owned) return true;
    found_.left[owner] = row;
    auto const dirty = (tier_.owner_word(row) & kDirtyFrame) != 0;
    if (dirty && lowest != kEmptyScore) found_.written.insert(owner);
    return true;
  }

  Tier const& tier_;
  std::set<int64_t> const& used_;
  std::set<std::tuple<bool, uint64_t, int64_t, int64_t>> choices_;
  Promoted found_;
};

struct Lists {
  RowList leaving, arriving;
  Array counts;

  int64_t leave() const { return counts.data<int32_t>()[0]; }
  int64_t arrive() const { return counts.data<int32_t>()[1]; }
};

// Checks that a frame which a location names has the slot as its owner.
void check_frames(Tier const& tier) {
  for (int64_t slot = 0; slot < tier.slots(); ++slot) {
    auto const location = tier.location_of(slot);
    if (location == kHomeLocation || is_fresh_location(location)) continue;
    auto const row = tier.frame_of(slot);
    expect(row >= 0, "a location names a frame, and the frame its owner");
    expect((tier.owner_word(row) & kTakenFrame) == 0, "no frame is marked after a call");
  }
}

// Whatever spill rows there are: what each list may hold, and that none is in both.
void check_lists(Tier const& before, Tier const& after, Lists const& lists,
                 std::set<int64_t> const& used) {
  auto const n = lists.leaving.slots.count();
  expect(lists.leave() >= 0 && lists.leave() <= std::min(n, after.spill), "rows that leave");
  expect(lists.arrive() >= 0 && lists.arrive() <= n, "rows that come");
  std::map<int64_t, int64_t> comes;  // by row
  std::set<int64_t> slots, rows;
  for (int64_t i = 0; i < lists.arrive(); ++i) {
    int64_t const slot = lists.arriving.slot(i), row = lists.arriving.row(i);
    expect(used.count(slot) > 0 && slots.insert(slot).second, "a slot of the batch comes once");
    expect(before.frame_of(slot) < 0 && !before.is_fresh(slot), "a row that was at home");
    expect(after.frame_of(slot) == row, "a record comes to its own frame");
    expect((after.owner_word(row) & kDirtyFrame) == 0, "a frame is not newer than its record");
    comes[row] = slot;
  }
  for (int64_t i = 0; i < lists.leave(); ++i) {
    int64_t const slot = lists.leaving.slot(i), row = lists.leaving.row(i);
    expect(after.has(slot) && slots.insert(slot).second, "a slot leaves once, and does not come");
    expect(used.count(slot) == 0, "rows of the batch keep their frames");
    auto const frame = before.frame_of(slot);
    expect(frame >= 0 && after.location_of(slot) == kHomeLocation, "it leaves its frame");
    expect((before.owner_word(frame) & kDirtyFrame) != 0, "the frame is newer than home");
    expect(after.has_row(row) && rows.insert(row).second, "a row leaves once");
    expect(row == frame ? comes.count(frame) > 0 : row >= after.first_spill(),
           "it stays in the frame to which a record comes, or has a spill row");
    expect(after.equals(row, before, frame), "the row itself leaves");
  }
}

// Where spill rows are enough all is known: the owner of each frame, and what is written home.
void check_against(Promoted const& model, Tier const& before, Tier const& after,
                   Lists const& lists) {
  std::map<int64_t, int64_t> newcomer;  // by frame
  int64_t come = 0;
  for (auto const& [slot, row] : model.frame_of) {
    newcomer[row] = slot;
    come += before.is_fresh(slot) ? 0 : 1;
  }
  expect(lists.arrive() == come, "as many records come as rows were at home");
  for (int64_t i = 0; i < lists.leave(); ++i) {
    expect(model.written.count(lists.leaving.slot(i)) > 0, "the right rows are written home");
  }
  for (int64_t slot = 0; slot < after.slots(); ++slot) {
    auto const found = model.frame_of.find(slot);
    auto const expected = found != model.frame_of.end() ? found->second % after.frames + 1
                          : model.left.count(slot) > 0  ? kHomeLocation
                                                        : before.location_of(slot);
    expect(after.location_of(slot) == expected, "the location of each slot");
  }
  for (int64_t row = 0; row < after.first_spill(); ++row) {
    auto const slot = newcomer.find(row);
    auto const same = after.owner_word(row) == before.owner_word(row);
    auto const dirty = (after.owner_word(row) & kDirtyFrame) != 0;
    expect(slot == newcomer.end() ? same : dirty == before.is_fresh(slot->second),
           "the owner of each frame");
    auto const fresh = slot != newcomer.end() && before.is_fresh(slot->second);
    expect(fresh || after.equals(row, before, row), "a frame keeps its row until swap_rows");
  }
}

void check_events(Promoted const& model, Tier const& before, Tier const& after, Array const& slots,
                  bool lookup, bool enough) {
  uint64_t hits = 0, live = 0;
  for (int64_t i = 0; i < slots.count(); ++i) {
    auto const slot = slots.data<int32_t>()[i];
    live += after.has(slot) ? 1 : 0;
    hits += after.has(slot) && before.frame_of(slot) >= 0 ? 1 : 0;
  }
  expect(after.event(kTierHits) == (lookup ? hits : 0), "ids whose row had a frame");
  expect(after.event(kTierMisses) == (lookup ? live - hits : 0), "ids whose row had none");
  auto const promoted = after.event(lookup ? kTierPromoted : kTierPrefetched);
  expect(after.event(lookup ? kTierPrefetched : kTierPromoted) == 0, "what brought rows");
  auto const all = model.frame_of.size() + static_cast<uint64_t>(model.bypassed);
  expect(promoted + after.event(kTierBypassed) == all, "each row came or was passed by");
  expect(!enough || promoted == model.frame_of.size(), "rows that came");
}

void add_promoted(Call& call, Tier const& tier, bool lookup, Random& random) {
  tier.add(call, true, true, true, true);
  auto const n = batch_size(random);
  auto const slots = call.operand(kS32, {n});
  fill_slots(random, slots, tier.slots());
  Lists lists;
  for (auto* const list : {&lists.leaving, &lists.arriving}) {
    list->slots = call.result(kS32, {n});
    list->rows = call.result(kS32, {n});
  }
  lists.counts = call.result(kS32, {2});
  if (!tier.sound) return;
  check_later(call, [tier, before = tier.copy(), slots, lists, lookup] {
    check_frames(tier);
    auto const used = Named(slots, tier.slots()).slots;
    check_lists(before, tier, lists, used);
    auto const model = PromotionModel(before, used).found();
    auto const leave = static_cast<int64_t>(model.written.size());
    auto const enough = leave <= tier.spill;
    expect(lists.leave() == std::min(leave, tier.spill), "as many as there are spill rows leave");
    expect(tier.event(kTierWrittenBack) == static_cast<uint64_t>(lists.leave()), "and are counted");
    if (enough) check_against(model, before, tier, lists);
    check_events(model, before, tier, slots, lookup, enough);
  });
}

// What a fetch has as operands.
struct Fetched {
  Array slots, keys;  // no keys: null
  int64_t round;
};

class FetchModel {
 public:
  FetchModel(Tier const& before, Fetched const& given) : tier_(before), given_(given) {
    for (int64_t i = 0; i < given.slots.count(); ++i) {
      if (is_kept(i) && tier_.frame_of(slot(i)) < 0) far_.insert(slot(i));
    }
    auto const all = static_cast<int64_t>(far_.size());
    auto const begin = std::clamp<int64_t>(given.round * tier_.spill, 0, all);
    auto const first = std::next(far_.begin(), begin);
    here_.assign(first, std::next(first, std::min(tier_.spill, all - begin)));
  }

  std::vector<int64_t> const& here() const { return here_; }  // slots that get a spill row
  int64_t far() const { return static_cast<int64_t>(far_.size()); }

  // Returns the row of the arrays for a position.
  int64_t place(int64_t i) const {
    if (slot(i) < 0) return first() ? std::max<int64_t>(slot(i), kNotAdmittedSlot) : -1;
    if (!is_kept(i)) return first() ? kLostPlace : -1;
    if (auto const frame = tier_.frame_of(slot(i)); frame >= 0) return first() ? frame : -1;
    auto const found = std::lower_bound(here_.begin(), here_.end(), slot(i));
    if (found == here_.end() || *found != slot(i)) return -1;
    return tier_.first_spill() + (found - here_.begin());
  }

  // The frames that the update changes.
  std::set<int64_t> changed() const {
    std::set<int64_t> rows;
    for (int64_t i = 0; first() && i < given_.slots.count(); ++i) {
      if (is_kept(i)) rows.insert(tier_.frame_of(slot(i)));
    }
    return rows;
  }

 private:
  bool first() const { return given_.round == 0; }
  int64_t slot(int64_t i) const { return given_.slots.data<int32_t>()[i]; }

  // Does the slot hold its id still? Keys are compared once rows were removed.
  bool is_kept(int64_t i) const {
    if (!tier_.has(slot(i))) return false;
    if (given_.keys.memory == nullptr || tier_.counters.data<uint64_t>()[kLeft] == 0) return true;
    return tier_.table->entry(slot(i)).key == given_.keys.data<Key>()[i];
  }

  Tier const& tier_;
  Fetched const& given_;
  std::set<int64_t> far_;
  std::vector<int64_t> here_;
};

void check_fetched(Tier const& before, Tier const& after, Fetched const& given, Array const& places,
                   Array const& spilled, Array const& counts) {
  FetchModel const model(before, given);
  auto const here = static_cast<int64_t>(model.here().size());
  expect(counts.data<int32_t>()[0] == here, "rows that were fetched");
  expect(counts.data<int32_t>()[1] == model.far(), "rows without a frame");
  for (int64_t i = 0; i < places.count(); ++i) {
    expect(places.data<int32_t>()[i] == model.place(i), "the row of each position");
  }
  std::set<int64_t> at_home;
  for (int64_t i = 0; i < here; ++i) {
    auto const slot = model.here()[static_cast<size_t>(i)];
    expect(spilled.data<int32_t>()[i] == slot, "slots without a frame, in order");
    at_home.insert(slot);
    if (before.is_fresh(slot)) continue;
    expect(after.equals_record(after.first_spill() + i, before.record(slot)), "its record");
  }
  for (int64_t slot = 0; slot < after.slots(); ++slot) {
    auto const expected = at_home.count(slot) > 0 ? kHomeLocation : before.location_of(slot);
    expect(after.location_of(slot) == expected, "a fetched row is at home, other locations stay");
  }
  auto const changed = model.changed();
  for (int64_t row = 0; row < after.first_spill(); ++row) {
    auto const bit = changed.count(row) > 0 ? kDirtyFrame : 0u;
    expect(after.owner_word(row) == (before.owner_word(row) | bit), "no frame changes its owner");
  }
  for (int64_t row = 0; row < after.rows(); ++row) {
    if (row >= after.first_spill() && row < after.first_spill() + here) continue;
    expect(after.equals(row, before, row), "other rows stay as they are");
  }
  expect(after.event(kTierUpdatedHome) == static_cast<uint64_t>(here), "rows are counted");
}

void add_fetched(Call& call, Tier const& tier, bool has_keys, int64_t round, Random& random) {
  tier.add(call, true, true, true, true);
  auto const n = batch_size(random);
  Fetched given{call.operand(kS32, {n}), {}, round};
  fill_slots(random, given.slots, tier.slots());
  if (has_keys) {
    given.keys = call.operand(kU32, {n, 2});
    for (int64_t i = 0; i < n; ++i) {
      auto const slot = given.slots.data<int32_t>()[i];
      auto const own = tier.has(slot) && !random.one_in(3);
      given.keys.data<Key>()[i] = own ? tier.table->entry(slot).key : Key(random.bits() % 2000);
    }
  }
  auto const places = call.result(kS32, {n});
  auto const spilled = call.result(kS32, {tier.spill});
  auto const counts = call.result(kS32, {2});
  check_later(call, [tier, before = tier.copy(), given, places, spilled, counts] {
    check_fetched(before, tier, given, places, spilled, counts);
  });
}

}  // namespace

Call make_promote(World& world, Random& random) {
  auto [call, tiers] = begin_tier_call(world, random);
  auto const purpose = random.below(2);
  scalar(call, "purpose", purpose);
  for (auto const& tier : tiers) add_promoted(call, tier, purpose == 0, random);
  finish(call);
  return call;
}

Call make_fetch(World& world, Random& random) {
  auto [call, tiers] = begin_tier_call(world, random);
  auto const has_keys = random.one_in(2);
  scalar(call, "has_keys", has_keys ? 1 : 0);
  auto const round = call.operand(kS32, {1});
  auto const number =
      static_cast<int32_t>(random.one_in(3) ? random.hostile() : random.of<int64_t>({0, 0, 1, 2}));
  round.data<int32_t>()[0] = number;
  for (auto const& tier : tiers) add_fetched(call, tier, has_keys, number, random);
  finish(call);
  return call;
}

}  // namespace dynemb::fuzz
