// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/full_buckets.cuh: the ids of a lookup that met a full bucket.
//
// A bucket of scores and keys is 2 KiB. If each id looked for its own victim, that would be read
// once an id, and of many ids of one bucket all but one would have to look again. So ids are first
// brought together by bucket, and then a warp reads a bucket once for all of them
// (core/full_bucket.h).
//
// They are brought together in bins: bucket number modulo the number of bins, which follows from
// the number of ids of the call. So a bin may hold ids of several buckets.
#pragma once

#include <cstdint>

#include "core/full_bucket.h"
#include "cuda/missing.cuh"
#include "cuda/new_slots.cuh"
#include "cuda/tally.cuh"
#include "cuda/tile_group.cuh"

namespace dynemb::cuda {

struct FullId {
  Key key;
  uint64_t mark;
  int64_t bucket;  // of the shard
  int32_t table;
  int32_t feature;
  uint32_t position;
};

// The number of a bucket among those of all tables, modulo the number of bins.
__device__ __forceinline__ uint32_t bin_of(MissingCall const& call, FullId const& id) {
  auto const first = call.view.first_slot[id.table] / kBucketCapacity;
  return static_cast<uint32_t>(first + id.bucket) & (call.list.full.num_bins - 1);
}

__device__ __forceinline__ FullId full_id(MissingCall const& call, uint32_t number) {
  auto const missing = *(call.list.last - number);
  auto const t = call.view.features[missing.feature].table;
  auto const hash = hash_key(missing.key);
  auto const bucket = local_bucket_of(call.view.tables[t], hash);
  return {missing.key, mark_of(hash), bucket, t, missing.feature, missing.position};
}

__device__ __forceinline__ uint32_t thread_of_grid() { return blockIdx.x * kThreads + threadIdx.x; }
__device__ __forceinline__ uint32_t threads_of_grid() { return gridDim.x * kThreads; }

// ---- ids are brought together: three phases -----------------------------------------------------

__device__ __forceinline__ void count_bins(MissingCall const& call, uint32_t count) {
  for (auto i = thread_of_grid(); i < count; i += threads_of_grid()) {
    atomicAdd(call.list.full.counts + bin_of(call, full_id(call, i)), 1u);
  }
}

// The sum over the lanes up to this one.
__device__ __forceinline__ uint32_t sum_up_to(uint32_t value) {
  for (int distance = 1; distance < 32; distance *= 2) {
    auto const left = __shfl_up_sync(kFullWarp, value, static_cast<unsigned>(distance));
    if (lane_id() >= distance) value += left;
  }
  return value;
}

// Each bin gets a part of `order`. Which one does not matter: a warp takes the next for 32 bins.
__device__ __forceinline__ void place_bins(FullIds const& full) {
  for (auto bin = thread_of_grid(); bin < full.num_bins; bin += threads_of_grid()) {
    auto const count = full.counts[bin];
    auto const used = __ballot_sync(kFullWarp, count != 0);
    if (used == 0) continue;
    auto const up_to = sum_up_to(count);
    uint32_t first = 0;
    if (lane_id() == 31) first = atomicAdd(full.num_ids, up_to);
    auto const begin = __shfl_sync(kFullWarp, first, 31) + up_to - count;
    full.ends[bin] = begin;
    auto const number = next_numbers(full.num_full, used);
    if (count != 0) full.bins[number] = {begin, begin + count};
  }
}

__device__ __forceinline__ void fill_bins(MissingCall const& call, uint32_t count) {
  auto const& full = call.list.full;
  for (auto i = thread_of_grid(); i < count; i += threads_of_grid()) {
    full.order[atomicAdd(full.ends + bin_of(call, full_id(call, i)), 1u)] = i;
  }
}

// ---- the buckets of a bin take them -------------------------------------------------------------

constexpr uint32_t kDone = 1u << 31;  // in `order`: this id has its slot, or is refused

__device__ __forceinline__ void count_rows_left(CallView const& view, Tally<1> const& rows_left) {
  rows_left.for_each_table(view.num_tables, [&](int32_t t, uint32_t const(&events)[1]) {
    if (events[0] == 0) return;
    auto const& table = view.tables[t];
    fetch_add(table.counters + kEvicted, events[0]);
    fetch_add(table.counters + kRows, ~uint64_t{events[0]} + 1);
    note_left(table);
  });
}

// A warp at work on a bin.
struct BinWorker {
  static constexpr int kLanes = 32;
  using Group = TileGroup<kLanes>;

  MissingCall const& call;
  Tally<1> const& rows_left;
  Group const& group;
  uint32_t end;  // of the bin in `order`

  // The id of this lane among those from `base` on.
  struct Own {
    FullId id;
    bool waits;
  };

  __device__ __forceinline__ Own own_of(uint32_t base) const {
    auto const i = base + static_cast<uint32_t>(group.rank());
    auto const number = i < end ? call.list.full.order[i] : kDone;
    if ((number & kDone) != 0) return {{}, false};
    return {full_id(call, number), true};
  }

  __device__ __forceinline__ void run(uint32_t begin) const {
    for (auto base = begin; base < end; base += kLanes) {
      for (auto own = own_of(base);;) {
        auto const waiting = group.ballot(own.waits);
        if (waiting == 0) break;
        auto const first = __ffs(static_cast<int>(waiting)) - 1;
        auto const bucket = group.broadcast(static_cast<uint64_t>(own.id.bucket), first);
        auto const table = group.broadcast(static_cast<uint64_t>(own.id.table), first);
        fill_bucket(base, &own, static_cast<int32_t>(table), static_cast<int64_t>(bucket));
      }
    }
  }

  // All ids of this bucket are at `begin` or later. `first` are those at `begin`.
  __device__ __forceinline__ void fill_bucket(uint32_t begin, Own* first, int32_t t,
                                              int64_t number) const {
    auto const& table = call.view.tables[t];
    auto const& use = call.uses[t];
    auto const slot_at = [&](int place) {
      return static_cast<int32_t>(number * kBucketCapacity + place);
    };
    auto const of_bucket = [&](Own const& own) {
      return own.waits && own.id.table == t && own.id.bucket == number;
    };
    auto bucket = FullBucket<Group>(group, table, bucket_at(table, number), use.clock);
    // Later ids may displace one, and packed scores count it: then resolve() asks whose slot it is.
    auto const is_final = end - begin <= kLanes && !is_packed(table.policy);
    for (auto base = begin; base < end; base += kLanes) {
      auto own = base == begin ? *first : own_of(base);
      auto const mine = of_bucket(own);
      auto const lowest = bucket.lowest_rank();
      auto const may_claim = mine && rank_of_mark(own.id.mark) >= lowest;
      Claim result{-1, false};
      for (auto rest = group.ballot(may_claim); rest != 0; rest &= rest - 1) {
        auto const from = lowest_bit(rest);
        auto const taken = bucket.claim(group.broadcast(own.id.mark, from));
        if (own.id.mark == taken.displaced) result = {-1, false};
        if (group.rank() == from) result = {taken.place, taken.won};
      }
      if (mine) {
        auto slot = result.place < 0 ? kRefusedSlot : slot_at(result.place);
        if (result.won) bring_in(table, own.id.key, slot, use.clock);
        if (result.place >= 0 && !is_final) slot = pending(slot);
        call.view.features[own.id.feature].slots[own.id.position] = slot;
        auto& number_of = call.list.full.order[base + static_cast<uint32_t>(group.rank())];
        if (result.won) (call.list.last - number_of)->won = kFullBucket;
        if (base == begin) {
          first->waits = false;
        } else {
          number_of |= kDone;
        }
      }
      group.sync();  // who displaces another one writes after it
    }
    if (group.rank() == 0 && bucket.rows_left() != 0) rows_left.add(t, 0, bucket.rows_left());
  }
};

// A warp a bin.
__device__ __forceinline__ void fill_full_buckets(MissingCall const& call) {
  __shared__ Tally<1>::Counts counts;
  auto const rows_left = Tally<1>{counts};
  rows_left.clear();
  auto const& full = call.list.full;
  auto const group = BinWorker::Group();
  auto const num_full = *full.num_full;
  constexpr auto kLanes = static_cast<uint32_t>(BinWorker::kLanes);
  for (auto i = thread_of_grid() / kLanes; i < num_full; i += threads_of_grid() / kLanes) {
    auto const bin = full.bins[i];
    BinWorker{call, rows_left, group, bin.end}.run(bin.begin);
  }
  count_rows_left(call.view, rows_left);
}

}  // namespace dynemb::cuda
