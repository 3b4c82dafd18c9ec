// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/lookup_ids.cuh: what a training lookup does with its ids in the kernel that probes
// (cuda/lookup/probe_rows.cuh), and the launches of all its kernels.
#pragma once

#include "core/lineage.h"
#include "core/lookup.h"
#include "cuda/grid/prologue.cuh"
#include "cuda/launch.h"
#include "cuda/lookup/missing.cuh"
#include "cuda/lookup/probe.cuh"
#include "cuda/lookup/probe_rows.cuh"

namespace dynemb::cuda {

__device__ __forceinline__ uint64_t nanoseconds_now() {
  uint64_t now = 0;
#ifdef __CUDA_ARCH__
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
#endif
  return now;
}

// A number that no other lookup gets: the time and a multiprocessor's cycles.
__device__ __forceinline__ uint64_t draw_nonce() {
#ifdef __CUDA_ARCH__
  auto const cycles = static_cast<uint64_t>(clock64());
#else
  static uint64_t cycles = 0;
  ++cycles;
#endif
  return hash_number(nanoseconds_now()) ^ cycles;
}

// Says what this lookup writes to the scores of a table. Its counters, which give the clock, change
// when all ids have been looked for (cuda/lookup/missing.cu).
struct Uses {
  uint64_t const* given;  // [tables], or null

  __device__ __forceinline__ Touch of(TableRef const& table, int32_t t, uint64_t now) const {
    auto const clock = next_clock(table.counters[kClock], now);
    return touch_of(score_rule(table), clock, given == nullptr ? 0 : given[t]);
  }

  // Where scores are times: the one that was given, or that of this device.
  __device__ __forceinline__ uint64_t time_of(int32_t t) const {
    auto const time = given == nullptr ? 0 : given[t];
    return time == 0 ? nanoseconds_now() : time;
  }
};

struct BeginLookup {
  Uses uses;
  Touch* stored;         // [tables]
  CounterRows* counted;  // [tables]
  Stamp* stamps;         // [tables]
  MissingList missing;

  __device__ void begin(Share const& share) const { begin_missing(missing, share); }

  // Counts all positions as hits: those that are none are taken off where they are met.
  template <class Call>
  __device__ CounterUpdates begin_table(Call const& call, TableRef const& table, int32_t t) const {
    uint64_t positions = 0;
    for (int32_t f = 0; f < call.num_features; ++f) {
      if (call.features[f].table == t) positions += static_cast<uint64_t>(call.features[f].num_ids);
    }
    fetch_add(table.counters + kHits, positions);
    auto const timed = table.policy == ScorePolicy::kTimestamp;
    auto const use = uses.of(table, t, timed ? uses.time_of(t) : 0);
    stored[t] = use;
    auto const moment = begin_moment(table, draw_nonce());
    if (stamps != nullptr) stamps[t] = stamp_of(table, moment);
    counted[t] = {{2, {kClock, kLookups}, {use.clock, table.counters[kLookups] + 1}},
                  table.counters,
                  table.counter_rows};
    return {0, {}, {}};  // not yet: the probes read the clock
  }
};

// May be behind what other multiprocessors have written.
__device__ __forceinline__ uint64_t cached_load(uint64_t const* address) {
#ifdef __CUDA_ARCH__
  uint64_t value;
  asm volatile("ld.relaxed.cta.u64 %0, [%1];" : "=l"(value) : "l"(address));
  return value;
#else
  return atomic_load(address);
#endif
}

// Events that warps count while they probe go to the last row of counters: all blocks read the
// first one, and each count would invalidate it in their caches.
__device__ __forceinline__ void count_beside(TableRef const& table, Counter counter,
                                             uint64_t events) {
  fetch_add(table.counters + (table.counter_rows - 1) * kNumCounters + counter, events);
}

// kSelects: scores may stay or be given, or ids may stand for several.
template <bool kSelects>
struct LookupIds {
  static constexpr bool kTrains = true;
  static constexpr int kBlock = kThreads;  // its warps share what they have touched
  static constexpr int kPooledIds = 1;
  using Begin = BeginLookup;

  Uses uses;
  Selection<kSelects> selection;
  Touch const*
      stored;  // [tables], or null: clocks count lookups, and each block finds the next one
  MissingList list;
  uint64_t waiting;  // a bit for each table that has a rule for unseen ids

  // Is the prologue of the lookup still to be done?
  bool begins() const { return stored == nullptr; }

  // A block writes the score of a popular id once: the more ids it has, the fewer writes.
  static int ids_of_bags(int tiles) { return 64 * tiles; }

  __device__ __forceinline__ Touch use_of(Here const& here) const {
    auto const t = here.feature.table;
    return stored != nullptr ? stored[t] : uses.of(here.table, t, 0);
  }

  __device__ __forceinline__ Initializer const& missing(TableRef const& table) const {
    return table.initializer;
  }

  // What the compiler may know of a table: each look at its policy would cost a few instructions.
  static __device__ __forceinline__ void assume(TableRef const& table) {
    if constexpr (!kSelects) assume_not_customized(table);
  }

  template <int kIds>
  __device__ __forceinline__ void probe(Here const& here, int64_t first, int64_t last, bool draws,
                                        Probed (&ids)[kIds]) const {
    auto const& feature = here.feature;
    Key keys[kIds];
    Found found[kIds];
    assume(here.table);
    load_keys(feature, first, last, keys);
    find_slots<true>(here.table, keys, found);
#pragma unroll
    for (int i = 0; i < kIds; ++i) {
      auto const position = first + i * 32 + lane_id();
      auto const slot = found[i].slot;
      ids[i] = {keys[i], slot};
      if (position < last) feature.slots[position] = slot;
      if constexpr (kSelects) count_further_uses(here, position, position < last && !is_none(slot));
      auto const without = __ballot_sync(kFullWarp, slot < 0 && position < last);
      if (without == 0) continue;
      auto const missing = __ballot_sync(kFullWarp, slot == kMissingSlot);
      if (missing != 0) claim(here, position, missing, draws, found[i].free_from, &ids[i]);
      if (missing != without) {
        count_none(here.table, without & ~missing, __ballot_sync(kFullWarp, slot == kRefusedSlot));
      }
    }
  }

  // For a position after the last bag; all lanes of a warp call this.
  __device__ __forceinline__ void skip(Here const& here, int64_t position) const {
    auto const exists = position < here.feature.num_ids;
    if (exists) here.feature.slots[position] = kPaddingSlot;
    count_none(here.table, __ballot_sync(kFullWarp, exists), 0);
  }

  static __device__ __forceinline__ bool is_none(int32_t slot) {
    return slot == kPaddingSlot || slot == kRefusedSlot;
  }

  // The lanes in `none` have padding or reserved ids, those in `refused` the latter.
  static __device__ __forceinline__ void count_none(TableRef const& table, unsigned none,
                                                    unsigned refused) {
    if (lane_id() != 0) return;
    count_beside(table, kHits, ~static_cast<uint64_t>(__popc(none)) + 1);
    if (refused != 0) fetch_add(table.counters + kRefused, static_cast<uint64_t>(__popc(refused)));
  }

  // The ids of the lanes in `missing` take empty slots at once: the digests of their buckets are in
  // the first-level cache. That probes go on meanwhile does no harm (core/claim.h). Ids of tables
  // with an admission rule wait for it (cuda/lookup/admission.cuh).
  __device__ __forceinline__ void claim(Here const& here, int64_t position, unsigned missing,
                                        bool draws, int free_from, Probed* id) const {
    assume(here.table);
    auto const waits = (waiting >> here.feature.table & 1) != 0;
    Pending claimed{id->slot, kNotWon};
    if (id->slot == kMissingSlot && !waits) {
      claimed = claim_empty_slot(here.table, id->key, use_of(here).clock, free_from);
      here.feature.slots[position] = claimed.slot;
    }
    auto const full = claimed.slot == kMissingSlot;
    auto const won = waits ? kCounted : full ? kUndecided : claimed.won;
    auto const fills = draws && won == kEmptySlot;
    append_missing(list, missing, __ballot_sync(kFullWarp, full),
                   {id->key, static_cast<uint32_t>(position),
                    static_cast<uint16_t>(here.feature_index), won, fills});
    if (fills) id->slot = claimed.slot;  // the others stay missing
  }

  // Those that ids stand for beside themselves; an id that stands for none counts as one less. Any
  // 32 numbers of 32 bits: the sums of their halves cannot wrap.
  __device__ __forceinline__ void count_further_uses(Here const& here, int64_t position,
                                                     bool is_id) const {
    auto const* const uses = selection.uses[here.feature_index];
    if (uses == nullptr) return;
    auto const own = is_id ? uses[position] : 0;
    auto const ids = __popc(__ballot_sync(kFullWarp, is_id));
    auto const low = sum_of_warp(own & 0xffff);
    auto const high = sum_of_warp(own >> 16);
    auto const further = (uint64_t{high} << 16) + low - static_cast<uint64_t>(ids);
    if (lane_id() == 0 && further != 0) count_beside(here.table, kHits, further);
  }

  __device__ __forceinline__ void touch(Here const& here, Probed const& id,
                                        int64_t position) const {
    if (id.slot < 0) return;
    if constexpr (kSelects) {
      if (selection.admissions[here.feature.table].keeps_scores != 0) return;
    }
    assume(here.table);
    auto const policy = here.table.policy;
    auto const use = use_of(here);
    auto* const score = score_at(here.table, id.slot);
    if (takes_more_than_clock(policy)) {
      auto own = use;
      uint32_t count = 1;
      auto of_id = false;
      if constexpr (kSelects) {
        auto const* const counts = selection.uses[here.feature_index];
        own = touch_at(use, policy, counts, here.feature.num_ids, position);
        count = uses_at(counts, position);
        of_id = counts != nullptr;
      }
      if (is_packed(policy)) {
        dynemb::touch(score, score_rule(here.table), own, count);
      } else {
        touch_custom_score(here.table, id.slot, own, of_id);
      }
      return;
    }
    // A look through the first-level cache, where the key has been read: what this multiprocessor
    // has written shows there. On the line of a popular id a look past it queues behind the writes
    // of all others (benchmarks/log/probe.md).
    auto const seen = cached_load(score);
    auto const wanted = use.clock | (seen & kPinBit);
    if (seen == wanted) return;
    if (!was_touched(here.touched, id.slot)) atomic_store(score, wanted);
  }

  // Has the block stored the score of this slot, or is it about to? A cache that forgets, so that
  // the block's duplicates of a popular id do not all write to one address.
  static __device__ __forceinline__ bool was_touched(int32_t* touched, int32_t slot) {
    auto* const entry = touched + static_cast<uint32_t>(slot) * 0x9e3779b1u / (~0u / kThreads + 1);
    return atomicExch(entry, slot) == slot;
  }
};

struct LookupScratch {
  CallView view;
  Touch* uses;
  CounterRows* counted;
  MissingList missing;

  LookupScratch(LookupArgs const& args, Scratch& scratch)
      : view(take_view(args, scratch)),
        uses(scratch.take<Touch>(args.num_tables)),
        counted(scratch.take<CounterRows>(args.num_tables)),
        missing(take_missing(total_ids(args), scratch)) {}
};

// Returns a bit for each table with a rule for unseen ids.
inline uint64_t waiting_tables(LookupArgs const& args) {
  static_assert(kMaxTables <= 64, "a bit for each");
  uint64_t result = 0;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    result |= uint64_t{args.admissions[t].rule != AdmissionRule::kAll} << t;
  }
  return result;
}

template <bool kSelects, class Size>
cudaError_t launch_lookup(LookupArgs const& args, LookupScratch const& scratch,
                          cudaStream_t stream) {
  auto const missing = scratch.missing;
  auto const begin = BeginLookup{{args.given}, scratch.uses, scratch.counted, args.stamps, missing};
  auto const selection = selection_of<kSelects>(args);
  auto const waiting = waiting_tables(args);
  auto ids = LookupIds<kSelects>{{args.given}, selection, nullptr, missing, waiting};
  if (has_policy(args, ScorePolicy::kTimestamp)) {
    DYNEMB_CUDA_TRY(launch_prologue<Size>(args, scratch.view, begin, stream));
    ids.stored = scratch.uses;
  }
  DYNEMB_CUDA_TRY(launch_rows<Size>(args, scratch.view, begin, ids, stream));
  auto const call = MissingCall{scratch.view, scratch.uses, scratch.counted, missing};
  auto const notes =
      std::any_of(args.removals, args.removals + args.num_tables, notes_removals) ||
      std::any_of(args.departures, args.departures + args.num_tables,
                  [](Departures const& departures) { return departures.ring != nullptr; });
  if (!kSelects && waiting == 0 && !notes) {
    return launch_missing<false>({call, {}, {}}, total_ids(args), stream);
  }
  return launch_missing<true>({call, selection_of<true>(args), removals_of<true>(args)},
                              total_ids(args), stream);
}

// launch_lookup<true>: kernels of their own, so that those of other lookups stay as they are
// (cuda/lookup/selecting_lookup.cu).
cudaError_t launch_selecting_lookup(LookupArgs const& args, LookupScratch const& scratch,
                                    cudaStream_t stream);

}  // namespace dynemb::cuda
