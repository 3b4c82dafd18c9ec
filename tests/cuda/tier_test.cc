// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/tier_test.cc: calls on tiered tables in random order never change what a row is, and
// frames go where they should; rows come as a loop over the ids adds them up; numbers that no call
// writes hurt no memory.
#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>

#include "cuda/tiers/gather.cu"
#include "cuda/tiers/rows.cu"
#include "tests/cuda/scratch_memory.h"
#include "tests/cuda/tier_calls.h"
#include "tests/cuda/tier_world.h"

namespace {

using namespace dynemb;
using namespace dynemb::testing;

// ---- what a promotion should do -----------------------------------------------------------------

struct Before {
  std::vector<int32_t> owner;  // of each frame
  std::vector<bool> dirty;
};

Before before(World& world) {
  Before result;
  for (int64_t row = 0; row < world.first_spill(); ++row) {
    auto const bucket = row / world.shape.frames;
    auto const frame = static_cast<int>(row % world.shape.frames);
    result.owner.push_back(owner_of(world.tier(), bucket, frame));
    result.dirty.push_back((world.owners[size_t(row)] & kDirtyFrame) != 0);
  }
  return result;
}

// Of one bucket: which rows may stay, which ones must come. Where spill rows run out only the first
// rule holds.
void check_bucket(World& world, Before const& was, int64_t bucket, std::set<int32_t> const& used,
                  bool spills_left) {
  auto const frames = world.shape.frames;
  std::set<int32_t> had, has;
  for (int f = 0; f < frames; ++f) {
    auto const row = size_t(bucket * frames + f);
    if (was.owner[row] >= 0) had.insert(was.owner[row]);
    auto const now = owner_of(world.tier(), bucket, f);
    if (now >= 0) has.insert(now);
  }
  std::vector<int32_t> newcomers;
  for (auto const slot : used) {
    if (had.count(slot) != 0) {
      CHECK(has.count(slot) != 0);  // a row of the batch stays
    } else if (slot / kBucketCapacity == bucket) {
      newcomers.push_back(slot);
    }
  }
  for (auto const slot : has) CHECK(had.count(slot) != 0 || used.count(slot) != 0);
  if (!spills_left) return;
  // Ranks of the frames that may be reassigned.
  std::multiset<uint64_t> ranks;
  for (int f = 0; f < frames; ++f) {
    auto const owner = was.owner[size_t(bucket * frames + f)];
    if (owner < 0) {
      ranks.insert(0);
    } else if (used.count(owner) == 0) {
      ranks.insert(*score_at(world.table, owner));
    }
  }
  std::multiset<uint64_t> left;
  for (auto const slot : had) {
    if (has.count(slot) == 0) left.insert(*score_at(world.table, slot));
  }
  for (auto const slot : newcomers) {
    auto const gets = !ranks.empty() && !(is_packed(world.shape.policy) &&
                                          *score_at(world.table, slot) < *ranks.begin());
    CHECK((has.count(slot) != 0) == gets);
    if (!gets) continue;
    auto const rank = *ranks.begin();
    ranks.erase(ranks.begin());
    // An empty frame, or one whose row of this score was evicted.
    auto const found = left.find(rank);
    if (found != left.end()) left.erase(found);
    CHECK(found != left.end() || rank == 0);
  }
  CHECK(left.empty());
}

void check_promotion(World& world, std::vector<int32_t> const& slots, Promotion purpose) {
  auto const was = before(world);
  auto const counted = world.counters;
  std::set<int32_t> used;
  uint64_t hits = 0, misses = 0;
  for (auto const slot : slots) {
    if (slot < 0 || slot >= world.num_slots) continue;
    used.insert(slot);
    (frame_of(world.tier(), slot) >= 0 ? hits : misses) += 1;
  }
  uint64_t wanted = 0;
  for (auto const slot : used) wanted += frame_of(world.tier(), slot) < 0 ? 1 : 0;
  for (auto const slot : used) {
    auto const had = frame_of(world.tier(), slot) >= 0;
    if (!had && is_fresh(world.tier(), slot)) {
      world.new_rows.insert(slot);
    } else {
      world.new_rows.erase(slot);
    }
  }
  auto lists = promote(world, slots, purpose);
  CHECK(lists.counts[0] == lists.counts[1]);
  std::vector<int32_t> spilled, arriving;
  int copies = 0;
  for (size_t i = 0; i < size_t(lists.counts[0]); ++i) {
    auto const slot = lists.slots[i], row = lists.rows[i];
    CHECK(slot >= -1 && lists.arriving[i] >= -1);
    if (lists.arriving[i] >= 0) arriving.push_back(lists.arriving[i]);
    if (slot < 0) continue;
    spilled.push_back(slot);
    // Aside where a new row was written to its frame; else a record comes there.
    auto const aside = row >= world.first_spill();
    CHECK(aside ? lists.arriving[i] == -1 : lists.arriving[i] >= 0 && lists.into[i] == row);
    copies += aside ? 1 : 0;
    auto const found = std::find(was.owner.begin(), was.owner.end(), slot);
    CHECK(found != was.owner.end() && was.dirty[size_t(found - was.owner.begin())]);
    CHECK(used.count(slot) == 0 && world.location[size_t(slot)] == kHomeLocation);
  }
  CHECK(std::is_sorted(arriving.begin(), arriving.end()));
  CHECK(std::is_sorted(spilled.begin(), spilled.end(),
                       [](int a, int b) { return a / kBucketCapacity < b / kBucketCapacity; }));
  write_back(world, lists, true);
  world.check_all();
  for (int64_t b = 0; b < world.shape.buckets; ++b) {
    std::set<int32_t> own;
    for (auto const slot : used) {
      if (slot / kBucketCapacity == b) own.insert(slot);
    }
    // The last spill row holds a mark.
    check_bucket(world, was, b, own, copies + 1 < world.shape.spill_rows);
  }
  auto const grown = [&](TierCounter c) { return world.counters[c] - counted[c]; };
  auto const looks_up = purpose == Promotion::kLookup;
  CHECK(grown(kTierHits) == (looks_up ? hits : 0) && grown(kTierMisses) == (looks_up ? misses : 0));
  CHECK(grown(looks_up ? kTierPromoted : kTierPrefetched) + grown(kTierBypassed) == wanted);
  CHECK(grown(kTierWrittenBack) == spilled.size());
}

// Of rows that all have frames nothing moves, and no row is new any more.
void check_framed(World& world, std::vector<int32_t> slots, Promotion purpose) {
  std::erase_if(slots, [&](int32_t slot) {
    return slot < 0 || slot >= world.num_slots || frame_of(world.tier(), slot) < 0;
  });
  auto const location = world.location;
  auto lists = promote(world, slots, purpose);
  CHECK(lists.counts[0] == 0 && lists.counts[1] == 0 && world.location == location);
  for (auto const slot : slots) {
    CHECK((world.owners[size_t(cached_row(world.tier(), slot))] & kNewFrame) == 0);
    world.new_rows.erase(slot);
  }
  write_back(world, lists, true);
  world.check_all();
}

// ---- updates ------------------------------------------------------------------------------------

void check_update(World& world, std::vector<int32_t> slots) {
  std::vector<Key> keys;
  for (auto const slot : slots) {
    auto const exists = slot >= 0 && slot < world.num_slots;
    keys.push_back(exists ? *key_at(world.table, slot) : Key{1});
  }
  auto const checks = world.random() % 2 == 0;
  world.table.counters[kLeft] = checks ? 1 : 0;
  std::set<size_t> lost;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] >= world.num_slots) lost.insert(i);
    if (slots[i] < 0 || slots[i] >= world.num_slots || world.random() % 9 != 0) continue;
    ++keys[i];
    if (checks) lost.insert(i);
  }
  std::set<int32_t> homeless;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0 || lost.count(i) != 0) continue;
    if (frame_of(world.tier(), slots[i]) < 0) homeless.insert(slots[i]);
  }
  std::vector<int32_t> const in_order(homeless.begin(), homeless.end());
  auto const spills = world.shape.spill_rows;
  std::map<int32_t, int> written;
  int32_t const rounds =
      std::max<int32_t>(1, (static_cast<int32_t>(homeless.size()) + spills - 1) / spills);
  for (int32_t round = 0; round < rounds + 1; ++round) {
    auto fetched = fetch(world, slots, &keys, round);
    auto const& places = fetched.places;
    auto spilled = fetched.lists.slots;
    CHECK(fetched.lists.counts[1] == static_cast<int32_t>(homeless.size()));
    auto const first = std::min(in_order.size(), size_t(round) * size_t(spills));
    auto const count = std::min(in_order.size() - first, size_t(spills));
    CHECK(fetched.lists.counts[0] == static_cast<int32_t>(count));
    spilled.resize(count);  // what follows is anything
    CHECK(std::equal(spilled.begin(), spilled.end(), in_order.begin() + int64_t(first)));
    std::map<int32_t, int32_t> row_of;
    for (size_t i = 0; i < slots.size(); ++i) {
      auto const slot = slots[i], at = places[i];
      if (slot < 0) {
        CHECK(at == (round == 0 ? std::max(slot, kNotAdmittedSlot) : -1));
      } else if (lost.count(i) != 0) {
        CHECK(at == (round == 0 ? kLostPlace : -1));
      } else if (homeless.count(slot) == 0) {
        CHECK(at == (round == 0 ? cached_row(world.tier(), slot) : -1));
        auto const row = cached_row(world.tier(), slot);
        if (round == 0) CHECK((world.owners[size_t(row)] & kDirtyFrame) != 0);
      } else {
        auto const found = std::find(spilled.begin(), spilled.end(), slot);
        auto const row = world.first_spill() + (found - spilled.begin());
        CHECK(at == (found == spilled.end() ? -1 : row));
      }
      if (at >= 0 && at != kLostPlace) row_of[slot] = at;
    }
    for (auto const& [slot, row] : row_of) {
      if (world.is_alive(slot)) {
        CHECK(World::content_of_row(world.table, row) == world.truth(slot));
      }
      world.write(row, slot);
      ++written[slot];
    }
    write_back(world, fetched.lists, false);
  }
  for (auto const& [slot, times] : written) CHECK(times == 1);
  for (auto const slot : homeless) CHECK(written[slot] == 1);
  world.check_all();
}

// ---- rows are read ------------------------------------------------------------------------------

float element(World& world, std::vector<char> const& row, int32_t column) {
  auto const* const at = row.data();
  if (world.table.value_type == ValueType::kFloat32) {
    float value;
    std::memcpy(&value, at + column * 4, 4);
    return value;
  }
  BFloat16 half;
  std::memcpy(&half.bits, at + column * 2, 2);
  return to_float(half);
}

// Is a row added up last?
bool is_new(World& world, int32_t slot, bool serves) {
  if (slot < 0 || serves) return slot < 0;
  auto const row = cached_row(world.tier(), slot);
  if (row < 0) return is_fresh(world.tier(), slot);
  return world.new_rows.count(slot) != 0;
}

void check_rows(World& world, std::vector<int32_t> slots, Pooling pooling, int64_t bag_size,
                bool weighted) {
  auto const dim = world.table.dim;
  slots.resize(slots.size() / size_t(bag_size) * size_t(bag_size));
  std::vector<uint64_t> ids;
  std::vector<float> weights;
  for (auto const slot : slots) {
    auto const exists = slot >= 0 && slot < world.num_slots;
    ids.push_back(exists ? *key_at(world.table, slot) : 5);
    weights.push_back(static_cast<float>(world.random() % 4));
  }
  auto const bags = static_cast<int64_t>(slots.size()) / bag_size;
  std::vector<float> rows(size_t(bags * dim), -99.0f), scale(size_t(bags), -99.0f);
  uint32_t done = 5;
  auto args = std::make_unique<TierRowsArgs>();
  args->num_tables = 2;
  args->tables[0] = {neighbours().before.table, neighbours().before.tier(), {}};
  auto& own = args->tables[1];
  own = {world.table, world.tier(), {InitializerKind::kConstant, {0.5f}}};
  own.table.index = nullptr;
  own.table.num_states = 0;
  args->num_features = 2;
  args->serves = static_cast<int32_t>(world.random() % 2);
  args->done = args->serves != 0 ? &done : nullptr;
  auto& feature = args->features[1];
  args->features[0].pooling = Pooling::kNoRows;
  feature = {};
  feature.table = 1;
  feature.ids = ids.data();
  feature.id_type = IdType::k64;
  feature.num_ids = static_cast<int64_t>(slots.size());
  feature.num_bags = bags;
  feature.bag_size = bag_size;
  feature.weights = weighted ? weights.data() : nullptr;
  feature.scale = pooling == Pooling::kMean ? scale.data() : nullptr;
  feature.pooling = pooling;
  feature.row_type = ValueType::kFloat32;
  feature.rows = rows.data();
  feature.slots = slots.data();
  testing::multiprocessors = static_cast<int>(world.random() % 4);
  CHECK(cuda::tier_rows(*args, nullptr, nullptr) == cudaSuccess);
  testing::multiprocessors = 0;
  CHECK(done == (args->serves != 0 ? 0 : 5));
  for (int64_t bag = 0; bag < bags; ++bag) {
    int32_t used = 0;
    auto known = true;
    std::vector<float> sum(size_t(dim), 0.0f);
    // Rows that there are, then first ones.
    for (auto const initial : {false, true}) {
      for (auto i = size_t(bag * bag_size); i < size_t((bag + 1) * bag_size); ++i) {
        auto const slot = slots[i];
        if (initial) used += slot == kPaddingSlot ? 0 : 1;
        if (slot == kPaddingSlot || slot >= world.num_slots) continue;
        known &= slot < 0 || world.is_alive(slot);  // else its row is anything
        if (!known) break;
        if (is_new(world, slot, args->serves != 0) != initial) continue;
        for (int32_t c = 0; c < dim; ++c) {
          auto const value = slot < 0 ? 0.5f : element(world, world.truth(slot).row, c);
          sum[size_t(c)] += (weighted ? weights[i] : 1.0f) * value;
        }
      }
    }
    if (!known) continue;
    auto const factor = pooling != Pooling::kMean ? 1.0f
                        : used == 0               ? 0.0f
                                                  : 1.0f / static_cast<float>(used);
    for (int32_t c = 0; c < dim; ++c) {
      CHECK(rows[size_t(bag * dim + c)] == factor * sum[size_t(c)]);
    }
    if (pooling == Pooling::kMean) CHECK(scale[size_t(bag)] == factor);
  }
}

void check_gather(World& world, std::vector<int32_t> const& slots) {
  auto const count = static_cast<int64_t>(slots.size());
  TierGatherArgs args{};
  args.table = world.table;
  args.tier = world.tier();
  args.num_slots = count;
  args.slots = slots.data();
  std::vector<std::vector<char>> arrays;
  arrays.emplace_back(size_t(count * row_bytes_of(world.table)), 'x');
  args.values = arrays[0].data();
  auto result = world.table;
  for (int s = 0; s < world.table.num_states; ++s) {
    arrays.emplace_back(size_t(count * 4 * world.table.state_width[s]), 'x');
    args.states[s] = result.states[s] = reinterpret_cast<float*>(arrays.back().data());
  }
  result.values = args.values;
  CHECK(cuda::tier_gather(args, nullptr, nullptr) == cudaSuccess);
  for (int64_t i = 0; i < count; ++i) {
    auto const slot = slots[size_t(i)];
    if (slot >= 0 && slot < world.num_slots) {
      if (world.is_alive(slot)) {
        CHECK(World::content_of_row(result, i) == world.truth(slot));
      }
      continue;
    }
    auto const zeros = World::content_of_row(result, i);
    for (auto const byte : zeros.row) CHECK(byte == 0);
    for (auto const byte : zeros.states) CHECK(byte == 0);
  }
}

// ---- tests --------------------------------------------------------------------------------------

void walk(Shape const& shape, int steps) {
  World world(shape);
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < 20; ++i) {
      auto const slot = static_cast<int32_t>(world.random() % uint64_t(world.num_slots));
      if (world.random() % 4 == 0) {
        world.erase(slot);
      } else if (!world.is_alive(slot) || world.random() % 8 == 0) {
        world.store_key(slot);
      } else {
        score_at(world.table, slot)[0] = world.score();
      }
    }
    auto const slots = world.batch(1 + world.random() % 300);
    check_promotion(world, slots,
                    world.random() % 3 != 0 ? Promotion::kLookup : Promotion::kPrefetch);
    if (step % 3 == 0) check_framed(world, slots, Promotion::kLookup);
    auto const large = step == 0;  // of several chunks, each as large as may be
    if (step % 8 == 0) {
      check_rows(world, large ? world.batch(9000) : slots, Pooling::kNone, 1, false);
    }
    check_rows(world, slots, Pooling::kSum, 1 + step % 40, step % 2 == 0);
    check_rows(world, slots, Pooling::kMean, 1 + step % 7, step % 3 == 0);
    check_update(world, slots);
    check_update(world, world.batch(200));
    check_gather(world, slots);
  }
}

// Nothing is compared: sanitizers see what is read and written.
void run_on_rubbish(Shape const& shape, uint64_t seed) {
  World world(shape);
  auto const rubbish = [&](std::vector<uint32_t>& words) {
    for (auto& word : words) {
      auto const random = random_at(seed++);
      word = static_cast<uint32_t>(random % 3 == 0 ? random >> 8 : (random >> 8) % 70);
      if (random % 5 == 0) word |= kDirtyFrame;
    }
  };
  for (int i = 0; i < 4; ++i) {
    rubbish(world.location);
    rubbish(world.owners);
    auto slots = world.batch(400);
    for (auto& slot : slots) {
      if (random_at(seed++) % 7 == 0) slot = static_cast<int32_t>(random_at(seed++));
    }
    auto lists = promote(world, slots, Promotion::kLookup);
    for (auto* const list : {&lists.slots, &lists.rows, &lists.arriving, &lists.into}) {
      for (auto& number : *list) {
        if (random_at(seed++) % 7 == 0) number = static_cast<int32_t>(random_at(seed++));
      }
    }
    for (auto& count : lists.counts) {
      if (random_at(seed++) % 2 == 0) count = static_cast<int32_t>(random_at(seed++));
    }
    write_back(world, lists, true);
    for (int32_t round : {0, 1, -3, 0x7fffffff}) {
      auto fetched = fetch(world, slots, nullptr, round);
      write_back(world, fetched.lists, false);
      for (auto const at : fetched.places) CHECK(at < world.num_rows || at == kLostPlace);
    }
    check_gather(world, {-1, world.num_slots});
  }
}

}  // namespace

int main() {
  std::mt19937_64 random(0);
  dynemb::testing::shuffle_blocks = [&](auto& order) {
    std::shuffle(order.begin(), order.end(), random);
  };
  constexpr auto kFloat = ValueType::kFloat32, kHalf = ValueType::kBFloat16;
  std::vector<Shape> const shapes = {
      {3, 4, 50, 8, kFloat, {}, ScorePolicy::kStep},
      {70, 8, 300, 6, kFloat, {6, 6}, ScorePolicy::kLfu},
      {9, 64, 7, 5, kHalf, {1}, ScorePolicy::kStep},
      {5, 33, 1000, 132, kFloat, {132, 132}, ScorePolicy::kTimestamp},
      {2, 1, 1, 7, kHalf, {7, 1}, ScorePolicy::kCustomized},
      {300, 5, 40, 3, kFloat, {3, 1, 3, 1}, ScorePolicy::kStep},
  };
  for (auto const& shape : shapes) {
    walk(shape, 12);
    run_on_rubbish(shape, static_cast<uint64_t>(shape.dim));
    std::printf("%lld buckets of %d frames, dim %d: ok\n", static_cast<long long>(shape.buckets),
                shape.frames, shape.dim);
  }
}
