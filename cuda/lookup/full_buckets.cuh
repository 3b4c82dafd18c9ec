// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/full_buckets.cuh: the ids of a lookup that met a full bucket.
//
// A bucket of scores and keys is 2 KiB. If each id looked for its own victim, that would be read
// once per id, and of many ids of one bucket all but one would have to look again. So ids are first
// grouped by bucket, and then a warp reads a bucket once for all of them (core/full_bucket.h).
//
// They are grouped in bins: bucket number modulo the number of bins. A bin may hold ids of several
// buckets, and should where there are bins for all warps: what a warp does with 32 ids costs the
// same for eight.
#pragma once

#include <cstdint>

#include "core/full_bucket.h"
#include "core/vacate.h"
#include "cuda/grid/async_copy.cuh"
#include "cuda/grid/tally.cuh"
#include "cuda/grid/warp.cuh"
#include "cuda/lookup/missing.cuh"

namespace dynemb::cuda {

struct FullId {
  uint64_t mark;
  int64_t bucket;  // of the shard
  int32_t table;

  __device__ __forceinline__ FullId(CallView const& view, Missing const& missing) {
    table = view.features[missing.feature].table;
    auto const hash = hash_key(missing.key, view.tables[table].hash);
    bucket = local_bucket_of(view.tables[table], hash);
    mark = mark_of(hash);
  }
};

__device__ __forceinline__ uint32_t thread_of_grid() { return blockIdx.x * kThreads + threadIdx.x; }
__device__ __forceinline__ uint32_t threads_of_grid() { return gridDim.x * kThreads; }

// ---- ids are grouped: three phases ----------------------------------------------------------

class BinFiller {
 public:
  // All threads of the grid call the members.
  __device__ __forceinline__ BinFiller(MissingCall const& call, uint32_t count)
      : call_(call), full_(call.list.full), count_(count) {
    auto const wanted = max(count / kIdsOfBin, min(4 * count, kEnoughBins));
    auto const bits = 32 - __clz(static_cast<int>(max(wanted, 32u) - 1));  // whole warps
    num_bins_ = min(1u << bits, full_.num_bins);
  }

  __device__ __forceinline__ void count() const {
    for_each_id([&](uint32_t, uint32_t bin) { atomicAdd(full_.bins + bin, 1u); });
  }

  // Which part of the ids a bin gets does not matter: a warp takes the next for 32 bins.
  __device__ __forceinline__ void place() const {
    for (auto bin = thread_of_grid(); bin < num_bins_; bin += threads_of_grid()) {
      auto const count = full_.bins[bin];
      auto const used = __ballot_sync(kFullWarp, count != 0);
      if (used == 0) continue;
      auto const up_to = sum_up_to_lane(count);
      uint32_t first = 0;
      if (lane_id() == 31) first = atomicAdd(full_.num_ids, up_to);
      auto const end = __shfl_sync(kFullWarp, first, 31) + up_to;
      full_.bins[bin] = end - count;
      auto const number = next_numbers(full_.num_used, used);
      if (count != 0) full_.used[number] = {end - count, end};
    }
  }

  __device__ __forceinline__ void fill() const {
    for_each_id(
        [&](uint32_t i, uint32_t bin) { full_.order[atomicAdd(full_.bins + bin, 1u)] = i; });
  }

 private:
  static constexpr uint32_t kEnoughBins = 1 << 15;  // several for each warp of a GPU

  template <class Function>
  __device__ __forceinline__ void for_each_id(Function const& function) const {
    for (auto i = thread_of_grid(); i < count_; i += threads_of_grid()) {
      function(i, bin_of(*(call_.list.last - i)));
    }
  }

  // The number of a bucket among those of all tables, modulo the number of bins.
  __device__ __forceinline__ uint32_t bin_of(Missing const& missing) const {
    auto const id = FullId(call_.view, missing);
    auto const first = call_.view.first_slot[id.table] / kBucketCapacity;
    return static_cast<uint32_t>(first + id.bucket) & (num_bins_ - 1);
  }

  MissingCall const& call_;
  FullIds const& full_;
  uint32_t count_;
  uint32_t num_bins_;
};

// ---- the buckets of a bin take them -------------------------------------------------------------

// Evicted rows; and those of them that were young, where such are noted.
template <bool kSelects>
using RowsLeft = Tally<kSelects ? 2 : 1>;

template <int kKinds>
__device__ __forceinline__ void count_rows_left(CallView const& view,
                                                Tally<kKinds> const& rows_left) {
  rows_left.for_each_table(view.num_tables, [&](int32_t t, uint32_t const(&events)[kKinds]) {
    if (events[0] == 0) return;
    auto const& table = view.tables[t];
    if (kKinds > 1 && events[kKinds - 1] != 0) {
      fetch_add(table.counters + kEvictedYoung, events[kKinds - 1]);
    }
    fetch_add(table.counters + kEvicted, events[0]);
    fetch_add(table.counters + kRows, ~uint64_t{events[0]} + 1);
    note_left(table);
  });
}

// A warp keeps the entries of its bucket, and those of the next one.
using EntryCopies = Entry[2][kBucketCapacity];

// A warp, which decides for bins, one after the other, 32 ids at a time.
template <bool kSelects>
class BinWorker {
 public:
  __device__ __forceinline__ BinWorker(SelectingCall<kSelects> const& selecting,
                                       RowsLeft<kSelects> const& rows_left, EntryCopies& copies)
      : call_(selecting.call),
        removals_(selecting.removals),
        rows_left_(rows_left),
        copies_(copies) {}

  __device__ __forceinline__ void run(FullBin const& bin) const {
    for (auto base = bin.begin; base < bin.end; base += 32) {
      auto const own = own_of(bin, base);
      auto const id = FullId(call_.view, own.missing);
      auto const undecided = own.missing.won == kUndecided;
      // These lanes have ids of the same bucket.
      auto const same = __match_any_sync(kFullWarp, undecided ? number_of(id) : kNothing);
      Claim result{-1, false};
      auto rest = group_.ballot(undecided);
      BucketId next{};
      if (rest != 0) next = fetch(id, lowest_bit(rest), copies_[0]);
      end_copies();
      for (auto turn = 0; rest != 0; turn = 1 - turn) {
        auto const bucket = next;
        auto const lanes = __shfl_sync(kFullWarp, same, lowest_bit(rest));
        rest &= ~lanes;
        if (rest != 0) next = fetch(id, lowest_bit(rest), copies_[1 - turn]);
        end_copies();
        wait_for_copies_before();
        auto const mine = (lanes >> lane_id() & 1) != 0;
        auto const claimed =
            claim_all({base + 32, bin.end}, bucket, copies_[turn], {id.mark, mine});
        if (mine) result = claimed;
      }
      if (undecided) settle(own, id, result, true);
    }
  }

 private:
  // Where tables have custom scores, the lookup selects (launch_lookup).
  using Rows = FullBucket<WarpGroup, kSelects>;

  struct BucketId {
    int32_t table;
    int64_t number;  // of the shard
  };

  // Holds the id of this lane among the 32 from `base` on.
  struct Own {
    Missing* listed;
    Missing missing;
  };

  __device__ __forceinline__ Own own_of(FullBin const& bin, uint32_t base) const {
    auto const i = base + static_cast<uint32_t>(lane_id());
    Missing const none{};
    if (i >= bin.end) return {nullptr, none};
    auto* const listed = call_.list.last - call_.list.full.order[i];
    return {listed, *listed};
  }

  // Numbers a bucket among those of all tables.
  static __device__ __forceinline__ uint64_t number_of(FullId const& id) {
    static_assert(kMaxTables <= 1 << 8, "eight bits for the table");
    return static_cast<uint64_t>(id.bucket) << 8 | static_cast<uint64_t>(id.table);
  }

  static __device__ __forceinline__ bool is_of(FullId const& id, BucketId const& bucket) {
    return id.table == bucket.table && id.bucket == bucket.number;
  }

  // Returns the bucket of a lane's id. Its entries are being copied to `copy`, each by the lane
  // that reads it (FullBucket). No other warp writes a bucket of this bin.
  __device__ __forceinline__ BucketId fetch(FullId const& id, int lane,
                                            Entry (&copy)[kBucketCapacity]) const {
    auto const of =
        BucketId{__shfl_sync(kFullWarp, id.table, lane), __shfl_sync(kFullWarp, id.bucket, lane)};
    auto const* const entries = bucket_at(call_.view.tables[of.table], of.number).entries;
#pragma unroll
    for (int i = lane_id(); i < kBucketCapacity; i += 32) begin_copy(copy + i, entries + i);
    return of;
  }

  // A lane's id, where it is one of the bucket in question: another bucket may hold its mark too.
  struct Claimant {
    uint64_t mark;
    bool is_one;
    Claim result{-1, false};

    __device__ __forceinline__ void hear_of(typename Rows::Taken const& taken) {
      if (is_one && mark == taken.displaced) result = {-1, false};
    }
  };

  // Returns the number of the lookup. Its counter may change while this kernel runs.
  __device__ __forceinline__ uint64_t lookup_of(int32_t t) const {
    return call_.counted[t].updates.values[1];
  }

  // Which rows of a bucket may leave.
  struct Leaving {
    TableRef const& table;
    NotedRemovals<kSelects> const& noted;
    BucketId of;
    uint64_t lookup;  // its number

    __device__ __forceinline__ bool stays(int place) const {
      if constexpr (kSelects) {
        return noted.departures[of.table].ring != nullptr && is_held(table, slot(place), lookup);
      }
      return false;
    }

    __device__ __forceinline__ int32_t slot(int place) const {
      return static_cast<int32_t>(of.number) * kBucketCapacity + place;
    }
  };

  // By one lane, for a row that the bucket is about to lose. False: it stays.
  struct RowNote {
    static constexpr bool kMayRefuse = kSelects;

    BinWorker const& worker;
    Leaving const& leaving;

    __device__ __forceinline__ bool operator()(int place, Key key) const {
      if constexpr (kSelects) return worker.note_row(leaving, place, key);
      return true;
    }
  };

  __device__ __forceinline__ bool note_row(Leaving const& leaving, int place, Key key) const {
    auto const t = leaving.of.table;
    auto const& removals = removals_.of[t];
    auto const& departures = removals_.departures[t];
    if (!notes_removals(removals) && departures.ring == nullptr) return true;
    auto const slot = leaving.slot(place);
    auto const row = Entry{key, *score_at(leaving.table, slot)};  // not written over yet
    if (departures.ring != nullptr && !note_departure(leaving.table, departures, slot, row)) {
      return false;
    }
    if (note_evicted(leaving.table, removals, slot, row, call_.uses[t].clock)) {
      rows_left_.add(t, 1);
    }
    return true;
  }

  // The claims of the lanes that claim, one after the other.
  __device__ __forceinline__ void claim(Rows* bucket, Leaving const& leaving, Claimant* now,
                                        bool claims, Claimant* earlier) const {
    auto const note = RowNote{*this, leaving};
    for (auto rest = group_.ballot(claims); rest != 0; rest &= rest - 1) {
      auto const from = lowest_bit(rest);
      auto const taken = bucket->claim(__shfl_sync(kFullWarp, now->mark, from), note);
      earlier->hear_of(taken);
      now->hear_of(taken);
      if (lane_id() == from) now->result = {taken.place, taken.won};
    }
    if constexpr (kSelects) __syncwarp();  // a row is noted before its slot is written
  }

  // All undecided ids of one bucket: those of the lanes, and those in `later` places, most often
  // none. Returns what the own one has won.
  __device__ __forceinline__ Claim claim_all(FullBin const& later, BucketId const& of,
                                             Entry const* entries, Claimant own) const {
    auto const& table = call_.view.tables[of.table];
    if constexpr (!kSelects) assume_not_customized(table);
    auto const where = bucket_at(table, of.number);
    auto const& use = call_.uses[of.table];
    auto const ranking = Ranking(table, use);
    auto const leaving = Leaving{table, removals_, of, lookup_of(of.table)};
    auto bucket = Rows(group_, table, where, entries, ranking, leaving);
    claim(&bucket, leaving, &own, own.is_one, &own);
    uint32_t kept = 0;
    for (auto base = later.begin; base < later.end; base += 32) {
      auto const other = own_of(later, base);
      auto const id = FullId(call_.view, other.missing);
      auto next = Claimant{id.mark, other.missing.won == kUndecided && is_of(id, of)};
      auto const lowest = bucket.lowest_rank();
      auto const claims = next.is_one && rank_of_mark(id.mark) >= lowest;
      if (kSelects && bucket.keeps_rows()) {
        kept += static_cast<uint32_t>(__popc(group_.ballot(next.is_one && !claims)));
      }
      claim(&bucket, leaving, &next, claims, &own);
      if (next.is_one) settle(other, id, next.result, false);
      __syncwarp();  // a key that displaces another one is written after it
    }
    if (lane_id() == 0 && bucket.rows_left() != 0) {
      rows_left_.add(of.table, 0, bucket.rows_left());
    }
    if constexpr (kSelects) {
      kept += bucket.kept();
      if (lane_id() == 0 && kept != 0) count_ring_full(removals_.departures[of.table], kept);
    }
    return own.result;
  }

  // Writes what an id has won. If it may still be displaced, or a new row takes more than the
  // clock, resolve() compares the slot's key.
  __device__ __forceinline__ void settle(Own const& own, FullId const& id, Claim const& result,
                                         bool is_final) const {
    auto const& table = call_.view.tables[id.table];
    auto slot = kRefusedSlot;
    if (result.place >= 0) {
      slot = static_cast<int32_t>(id.bucket) * kBucketCapacity + result.place;
      if (!is_final || takes_more_than_clock(table.policy)) slot = pending(slot);
    }
    if (result.won) {
      auto const bucket = bucket_at(table, id.bucket);
      bring_in(bucket, result.place, own.missing.key, id.mark,
               first_score(table.policy, call_.uses[id.table].clock));
      if constexpr (kSelects) begin_custom_score(table, bucket, result.place);
    }
    call_.view.features[own.missing.feature].slots[own.missing.position] = slot;
    own.listed->won = result.won ? kFullBucket : kNotWon;
  }

  MissingCall const& call_;
  NotedRemovals<kSelects> const& removals_;
  RowsLeft<kSelects> const& rows_left_;
  EntryCopies& copies_;
  WarpGroup group_;
};

// Each bin has a warp.
template <bool kSelects>
__device__ __forceinline__ void fill_full_buckets(SelectingCall<kSelects> const& selecting) {
  auto const& call = selecting.call;
  __shared__ typename RowsLeft<kSelects>::Counts counts;
  __shared__ EntryCopies copies[kWarpsPerBlock];
  auto const rows_left = RowsLeft<kSelects>{counts};
  rows_left.clear();
  auto const worker = BinWorker<kSelects>(selecting, rows_left, copies[threadIdx.x / 32]);
  auto const num_used = *call.list.full.num_used;
  for (auto i = thread_of_grid() / 32; i < num_used; i += threads_of_grid() / 32) {
    worker.run(call.list.full.used[i]);
  }
  count_rows_left(call.view, rows_left);
}

}  // namespace dynemb::cuda
