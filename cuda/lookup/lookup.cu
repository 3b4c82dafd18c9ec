// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/lookup.cu: training lookup: a kernel for probes, claims of empty slots and rows, and
// one for the ids without a slot (cuda/lookup/missing.cu). Where clocks are nanoseconds, one more
// reads the time first.
#include "core/lookup.h"
#include "cuda/grid/prologue.cuh"
#include "cuda/launch.h"
#include "cuda/lookup/missing.cuh"
#include "cuda/lookup/probe.cuh"
#include "cuda/lookup/probe_rows.cuh"

namespace dynemb::cuda {
namespace {

__device__ uint64_t nanoseconds_now() {
  uint64_t now = 0;
#ifdef __CUDA_ARCH__
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
#endif
  return now;
}

// What the scores of a table say of this lookup. Its counters, which give the clock, change when
// all ids have been looked for (cuda/lookup/missing.cu).
struct Uses {
  uint32_t const* given_scores;  // [tables], or null

  __device__ __forceinline__ Touch of(TableRef const& table, int32_t t, uint64_t now) const {
    auto const clock = next_clock(table.counters[kClock], now);
    return {clock, given_scores == nullptr ? 0 : given_scores[t]};
  }
};

struct BeginLookup {
  Uses uses;
  Touch* stored;         // [tables]
  CounterRows* counted;  // [tables]
  Stamp* stamps;         // [tables]
  MissingList missing;

  __device__ void begin(Share const& share) const { begin_missing(missing, share); }

  template <class Call>
  __device__ CounterUpdates begin_table(Call const&, TableRef const& table, int32_t t) const {
    auto const timed = table.policy == ScorePolicy::kTimestamp;
    auto const use = uses.of(table, t, timed ? nanoseconds_now() : 0);
    stored[t] = use;
    if (stamps != nullptr) stamps[t] = stamp_of(table, use.clock);
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

struct LookupIds {
  static constexpr bool kTrains = true;
  static constexpr int kBlock = kThreads;  // its warps share what they have touched
  static constexpr int kPooledIds = 1;
  using Begin = BeginLookup;

  Uses uses;
  Touch const*
      stored;  // [tables], or null: clocks count lookups, and each block finds the next one
  MissingList list;

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

  template <int kIds>
  __device__ __forceinline__ void probe(Here const& here, int64_t first, int64_t last, bool draws,
                                        Probed (&ids)[kIds]) const {
    auto const& feature = here.feature;
    Key keys[kIds];
    Found found[kIds];
    load_keys(feature, first, last, keys);
    find_slots<true>(here.table, keys, found);
#pragma unroll
    for (int i = 0; i < kIds; ++i) {
      auto const position = first + i * 32 + lane_id();
      auto const slot = found[i].slot;
      ids[i] = {keys[i], slot};
      if (position < last) feature.slots[position] = slot;
      auto const missing = __ballot_sync(kFullWarp, slot == kMissingSlot);
      if (missing != 0) claim(here, position, missing, draws, found[i].free_from, &ids[i]);
      auto const refused = __ballot_sync(kFullWarp, slot == kRefusedSlot);
      if (refused != 0 && lane_id() == 0) {
        fetch_add(here.table.counters + kRefused, static_cast<uint64_t>(__popc(refused)));
      }
    }
  }

  // The ids of the lanes in `missing` take empty slots at once: the digests of their buckets are in
  // the first-level cache. That probes go on meanwhile does no harm (core/claim.h).
  __device__ __forceinline__ void claim(Here const& here, int64_t position, unsigned missing,
                                        bool draws, int free_from, Probed* id) const {
    Pending claimed{id->slot, kNotWon};
    if (id->slot == kMissingSlot) {
      claimed = claim_empty_slot(here.table, id->key, use_of(here).clock, free_from);
      here.feature.slots[position] = claimed.slot;
    }
    auto const full = claimed.slot == kMissingSlot;
    auto const won = full ? kUndecided : claimed.won;
    auto const fills = draws && won == kEmptySlot;
    append_missing(list, missing, __ballot_sync(kFullWarp, full),
                   {id->key, static_cast<uint32_t>(position),
                    static_cast<uint16_t>(here.feature_index), won, fills});
    if (fills) id->slot = claimed.slot;  // the others stay missing
  }

  __device__ __forceinline__ void touch(Here const& here, Probed const& id) const {
    if (id.slot < 0) return;
    auto const policy = here.table.policy;
    auto const use = use_of(here);
    auto* const score = score_at(here.table, id.slot);
    if (is_packed(policy)) {
      dynemb::touch(score, policy, use.clock, use.given);
      return;
    }
    // A look through the first-level cache, where the key has been read: what this multiprocessor
    // has written shows there. On the line of a popular id a look past it queues behind the writes
    // of all others, and takes four times as long as one more write (benchmarks/log/new_ids.md).
    if (cached_load(score) == use.clock) return;
    if (!was_touched(here.touched, id.slot)) atomic_store(score, use.clock);
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

template <class Predicate>
bool any_table(LookupArgs const& args, Predicate const& is) {
  return std::any_of(args.tables, args.tables + args.num_tables,
                     [&](TableRef const& table) { return is(table.policy); });
}

}  // namespace

size_t lookup_scratch_bytes(LookupArgs const& args) {
  Scratch scratch(nullptr);
  LookupScratch(args, scratch);
  return scratch.used();
}

cudaError_t lookup(LookupArgs const& args, void* memory, cudaStream_t stream) {
  if (!is_countable(args)) return cudaErrorInvalidValue;
  Scratch pieces(memory);
  LookupScratch scratch(args, pieces);
  if (args.num_tables == 0) return cudaSuccess;
  scratch.missing.counts = missing_counts(args.tables[0]);
  auto const missing = scratch.missing;
  return with_call_size(args.num_tables, args.num_features, [&](auto size) {
    using Size = decltype(size);
    auto const begin =
        BeginLookup{{args.given_scores}, scratch.uses, scratch.counted, args.stamps, missing};
    auto ids = LookupIds{{args.given_scores}, nullptr, missing};
    auto const timed = [](ScorePolicy policy) { return policy == ScorePolicy::kTimestamp; };
    if (any_table(args, timed)) {
      DYNEMB_CUDA_TRY(launch_prologue<Size>(args, scratch.view, begin, stream));
      ids.stored = scratch.uses;
    }
    DYNEMB_CUDA_TRY(launch_rows<Size>(args, scratch.view, begin, ids, stream));
    return launch_missing({scratch.view, scratch.uses, scratch.counted, missing}, total_ids(args),
                          stream);
  });
}

}  // namespace dynemb::cuda
