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
  uint64_t mark;
  int64_t bucket;  // of the shard
  int32_t table;

  __device__ __forceinline__ FullId(CallView const& view, Missing const& missing) {
    auto const hash = hash_key(missing.key);
    table = view.features[missing.feature].table;
    bucket = local_bucket_of(view.tables[table], hash);
    mark = mark_of(hash);
  }
};

// The number of a bucket among those of all tables, modulo the number of bins.
__device__ __forceinline__ uint32_t bin_of(MissingCall const& call, Missing const& missing) {
  auto const id = FullId(call.view, missing);
  auto const first = call.view.first_slot[id.table] / kBucketCapacity;
  return static_cast<uint32_t>(first + id.bucket) & (call.list.full.num_bins - 1);
}

__device__ __forceinline__ uint32_t thread_of_grid() { return blockIdx.x * kThreads + threadIdx.x; }
__device__ __forceinline__ uint32_t threads_of_grid() { return gridDim.x * kThreads; }

// ---- ids are brought together: three phases -----------------------------------------------------

__device__ __forceinline__ void count_bins(MissingCall const& call, uint32_t count) {
  for (auto i = thread_of_grid(); i < count; i += threads_of_grid()) {
    atomicAdd(call.list.full.bins + bin_of(call, *(call.list.last - i)), 1u);
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

// Which part of the ids a bin gets does not matter: a warp takes the next for 32 bins.
__device__ __forceinline__ void place_bins(FullIds const& full) {
  for (auto bin = thread_of_grid(); bin < full.num_bins; bin += threads_of_grid()) {
    auto const count = full.bins[bin];
    auto const used = __ballot_sync(kFullWarp, count != 0);
    if (used == 0) continue;
    auto const up_to = sum_up_to(count);
    uint32_t first = 0;
    if (lane_id() == 31) first = atomicAdd(full.num_ids, up_to);
    auto const end = __shfl_sync(kFullWarp, first, 31) + up_to;
    full.bins[bin] = end - count;
    auto const number = next_numbers(full.num_used, used);
    if (count != 0) full.used[number] = {end - count, end};
  }
}

__device__ __forceinline__ void fill_bins(MissingCall const& call, uint32_t count) {
  auto const& full = call.list.full;
  for (auto i = thread_of_grid(); i < count; i += threads_of_grid()) {
    full.order[atomicAdd(full.bins + bin_of(call, *(call.list.last - i)), 1u)] = i;
  }
}

// ---- the buckets of a bin take them -------------------------------------------------------------

__device__ __forceinline__ void count_rows_left(CallView const& view, Tally<1> const& rows_left) {
  rows_left.for_each_table(view.num_tables, [&](int32_t t, uint32_t const(&events)[1]) {
    if (events[0] == 0) return;
    auto const& table = view.tables[t];
    fetch_add(table.counters + kEvicted, events[0]);
    fetch_add(table.counters + kRows, ~uint64_t{events[0]} + 1);
    note_left(table);
  });
}

// A warp at work on bins, one after the other.
class BinWorker {
 public:
  __device__ __forceinline__ BinWorker(MissingCall const& call, Tally<1> const& rows_left)
      : call_(call), full_(call.list.full), rows_left_(rows_left) {}

  __device__ __forceinline__ void fill_buckets(FullBin const& bin) const {
    for (auto base = bin.begin; base < bin.end; base += 32) {
      auto const own = own_of(bin, base);
      auto const id = FullId(call_.view, own.missing);
      for (auto rest = group_.ballot(own.missing.won == kUndecided); rest != 0;) {
        auto const first = lowest_bit(rest);
        auto const number = group_.broadcast(static_cast<uint64_t>(id.bucket), first);
        auto const table = static_cast<int32_t>(group_.broadcast(static_cast<uint64_t>(id.table), first));
        auto const bucket = static_cast<int64_t>(number);
        auto const mine = (rest >> lane_id() & 1) != 0 && id.table == table && id.bucket == bucket;
        fill_bucket({base, bin.end}, own, id, mine, table, bucket);
        rest &= ~group_.ballot(mine);
      }
    }
  }

 private:
  using Group = TileGroup<32>;

  // The id of this lane among the 32 from `base` on.
  struct Own {
    Missing* listed;
    Missing missing;
  };

  __device__ __forceinline__ Own own_of(FullBin const& bin, uint32_t base) const {
    auto const i = base + static_cast<uint32_t>(lane_id());
    Missing const none{};
    if (i >= bin.end) return {nullptr, none};
    auto* const listed = call_.list.last - full_.order[i];
    return {listed, *listed};
  }

  // All undecided ids of this bucket are in `bin`; of its first 32 the lane has `own`, and `mine`
  // says whether that is one.
  __device__ __forceinline__ void fill_bucket(FullBin const& bin, Own own, FullId id, bool mine,
                                              int32_t t, int64_t number) const {
    auto const& table = call_.view.tables[t];
    auto const clock = call_.uses[t].clock;
    auto const where = bucket_at(table, number);
    auto bucket = FullBucket<Group>(group_, table, where, clock);
    // Later ids may displace one, and packed scores count it: then resolve() asks whose slot it is.
    auto const is_final = bin.end - bin.begin <= 32 && !is_packed(table.policy);
    auto claims = mine;
    for (auto base = bin.begin;;) {
      Claim result{-1, false};
      for (auto rest = group_.ballot(claims); rest != 0; rest &= rest - 1) {
        auto const from = lowest_bit(rest);
        auto const taken = bucket.claim(group_.broadcast(id.mark, from));
        if (id.mark == taken.displaced) result = {-1, false};
        if (lane_id() == from) result = {taken.place, taken.won};
      }
      if (mine) {
        auto slot = kRefusedSlot;
        if (result.place >= 0) slot = static_cast<int32_t>(number) * kBucketCapacity + result.place;
        if (result.won) {
          bring_in(where, result.place, own.missing.key, id.mark, first_score(table.policy, clock));
        }
        if (result.place >= 0 && !is_final) slot = pending(slot);
        call_.view.features[own.missing.feature].slots[own.missing.position] = slot;
        own.listed->won = result.won ? kFullBucket : kNotWon;
      }
      base += 32;
      if (base >= bin.end) break;
      __syncwarp();  // who displaces another one writes after it
      own = own_of(bin, base);
      id = FullId(call_.view, own.missing);
      mine = own.missing.won == kUndecided && id.table == t && id.bucket == number;
      auto const lowest = bucket.lowest_rank();
      claims = mine && rank_of_mark(id.mark) >= lowest;
    }
    if (lane_id() == 0 && bucket.rows_left() != 0) rows_left_.add(t, 0, bucket.rows_left());
  }

  MissingCall const& call_;
  FullIds const& full_;
  Tally<1> const& rows_left_;
  Group group_;
};

// A warp a bin.
__device__ __forceinline__ void fill_full_buckets(MissingCall const& call) {
  __shared__ Tally<1>::Counts counts;
  auto const rows_left = Tally<1>{counts};
  rows_left.clear();
  auto const worker = BinWorker(call, rows_left);
  auto const num_used = *call.list.full.num_used;
  auto const* const used = call.list.full.used;
  auto const step = threads_of_grid() / 32;
  auto i = thread_of_grid() / 32;
  auto bin = i < num_used ? used[i] : FullBin{};
  while (i < num_used) {
    i += step;
    auto const next = i < num_used ? used[i] : FullBin{};  // on its way meanwhile
    worker.fill_buckets(bin);
    bin = next;
  }
  count_rows_left(call.view, rows_left);
}

}  // namespace dynemb::cuda
