// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/missing.cu: the phases of a training lookup after probes and claims of empty slots:
// which ids of tables with a rule are admitted, full buckets, resolve.
//
// They work on the list of the ids that the probe did not find. Its length is known on the device
// only: each phase loops until it is done, and a batch without misses costs the launch. So there is
// one kernel, in which blocks wait for each other.
#include "cuda/grid/tally.cuh"
#include "cuda/lookup/admission.cuh"
#include "cuda/lookup/full_buckets.cuh"
#include "cuda/lookup/missing.cuh"
#include "cuda/lookup/new_slots.cuh"

namespace dynemb::cuda {
namespace {

// Holds an id of the list. The slot of a position that is not on the list is never touched here.
struct MissingId {
  FeatureRef const& feature;
  TableRef const& table;
  Key key;
  int64_t position;

  __device__ MissingId(CallView const& view, Missing const& id)
      : feature(view.features[id.feature]),
        table(view.tables[feature.table]),
        key(id.key),
        position(id.position) {}
};

// Backwards: the end of the list is in the second-level cache. Those of full buckets follow, bucket
// by bucket, as they were grouped.
__device__ __forceinline__ Missing missing_id(MissingList const& list, MissingCounts const& counts,
                                              uint32_t i) {
  if (i >= counts.ids) return *(list.last - list.full.order[i - counts.ids]);
  return list.ids[counts.ids - 1 - i];
}

// A block counts these events. Ids stand for any number of uses, so the sums of those have two
// words.
enum Event : int {
  kNewRow,
  kNoRow,
  kMissed,
  kMissedHigh,
  kKeptOut,
  kKeptOutHigh,
  kNumEvents,
};

DYNEMB_HD uint64_t sum_of(uint32_t const (&events)[kNumEvents], Event low, Event high) {
  return uint64_t{events[high]} << 32 | events[low];
}

// A lane an id; then the warp writes first values where they are not written yet.
template <bool kSelects>
__device__ __forceinline__ void resolve_all(SelectingCall<kSelects> const& selecting,
                                            MissingCounts const& counts) {
  auto const& call = selecting.call;
  __shared__ Tally<kNumEvents>::Counts events;
  auto const tally = Tally<kNumEvents>{events};
  tally.clear();
  auto const total = counts.ids + counts.full;
  auto const step = threads_of_grid();
  for (auto base = thread_of_grid() / 32 * 32; base < total; base += step) {
    auto const i = base + static_cast<uint32_t>(lane_id());
    Missing missing{};
    Resolved now{kRefusedSlot, false};
    int32_t t = -1;
    if (i < total) {
      missing = missing_id(call.list, counts, i);
      auto const id = MissingId(call.view, missing);
      t = id.feature.table;
      auto& slot = id.feature.slots[id.position];
      if constexpr (kSelects) {
        auto const* const counts = selecting.selection.uses[missing.feature];
        auto const own =
            touch_at(call.uses[t], id.table.policy, counts, id.feature.num_ids, id.position);
        now = resolve(id.table, id.key, {slot, missing.won}, own, uses_at(counts, id.position));
      } else {
        assume_not_customized(id.table);
        now = resolve(id.table, id.key, {slot, missing.won}, call.uses[t]);
      }
      if (slot != now.slot) slot = now.slot;
      if (now.is_new) tally.add(t, kNewRow);
      if (now.slot == kRefusedSlot) tally.add(t, kNoRow);
      if constexpr (kSelects) {
        auto const uses = uses_at(selecting.selection.uses[missing.feature], id.position);
        tally.add_many(t, kMissed, kMissedHigh, uses);
        if (now.slot == kNotAdmittedSlot) tally.add_many(t, kKeptOut, kKeptOutHigh, uses);
      } else {
        tally.add(t, kMissed);
      }
    }
    auto const rows = __ballot_sync(kFullWarp, now.is_new && !missing.has_row);
    for (auto rest = __ballot_sync(kFullWarp, now.is_new); rest != 0;) {
      auto const table = __shfl_sync(kFullWarp, t, lowest_bit(rest));
      auto const same = rest & __ballot_sync(kFullWarp, t == table);
      initialize_slots(call.view.tables[table], same, same & rows, {missing.key, now.slot});
      rest &= ~same;
    }
  }
  tally.for_each_table(
      call.view.num_tables, [&](int32_t table, uint32_t const(&events)[kNumEvents]) {
        auto* const counters = call.view.tables[table].counters;
        if (events[kNewRow] != 0) {
          fetch_add(counters + kInserted, events[kNewRow]);
          fetch_add(counters + kRows, events[kNewRow]);
        }
        if (events[kNoRow] != 0) fetch_add(counters + kRefused, events[kNoRow]);
        if (auto const missed = sum_of(events, kMissed, kMissedHigh)) {
          fetch_add(counters + kMisses, missed);
          fetch_add(counters + kHits, ~missed + 1);  // every position was counted there
        }
        auto const kept_out = sum_of(events, kKeptOut, kKeptOutHigh);
        if (kept_out != 0) fetch_add(counters + kNotAdmitted, kept_out);
      });
}

__device__ __forceinline__ void count_lookup(MissingCall const& call) {
  auto const warp = static_cast<int32_t>(blockIdx.x * kWarpsPerBlock + threadIdx.x / 32);
  auto const warps = static_cast<int32_t>(gridDim.x * kWarpsPerBlock);
  for (auto t = warp; t < call.view.num_tables; t += warps) set_counters(call.counted[t]);
}

// Between phases. No deadlock: there are no more blocks than the GPU has room for (host), and a
// later kernel gets room only when all blocks of an earlier one have theirs. A block that has
// arrived for the `round`-th time sees all that blocks wrote before.
__device__ __forceinline__ void wait_for_blocks(uint32_t* arrived, uint32_t round) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
    while (*static_cast<uint32_t volatile*>(arrived) < round * gridDim.x) __nanosleep(64);
    __threadfence();
  }
  __syncthreads();
}

// The last block to end knows that all have read how many ids there are.
__device__ __forceinline__ void forget(MissingList const& list) {
  if (threadIdx.x != 0) return;
  if (atomicAdd(list.ended, 1u) == gridDim.x - 1) *list.counts = {0, 0};
}

// Ids of full buckets, grouped by bucket. Blocks have waited for each other `round` times.
__device__ __forceinline__ void gather_full(MissingCall const& call, uint32_t count,
                                            uint32_t round) {
  auto const bins = BinFiller(call, count);
  bins.count();
  wait_for_blocks(call.list.arrived, round + 1);
  bins.place();
  wait_for_blocks(call.list.arrived, round + 2);
  bins.fill();
}

__device__ __forceinline__ bool is_empty(MissingCounts const& counts) {
  return counts.ids == 0 && counts.full == 0;
}

// Out of line, where the other phases have no registers to give.
template <bool kSelects>
__device__ __noinline__ void fill_full_buckets_apart(SelectingCall<kSelects> const& selecting) {
  fill_full_buckets(selecting);
}

// A constant of the grid: else each thread would copy the call, to have an address for what is out
// of line.
template <bool kSelects>
__global__ void __launch_bounds__(kThreads, 3)
    missing_kernel(__grid_constant__ SelectingCall<kSelects> const selecting) {
  auto const& call = selecting.call;
  wait_for_earlier();
  auto const counts = *call.list.counts;
  count_lookup(call);
  if (counts.full != 0) {
    uint32_t round = 0;
    if constexpr (kSelects) {
      auto const wait = [&](uint32_t n) { wait_for_blocks(call.list.arrived, n); };
      round = admit(call, selecting.selection, counts.full, wait);
    }
    gather_full(call, counts.full, round);
    wait_for_blocks(call.list.arrived, round + 3);
    fill_full_buckets_apart(selecting);
    wait_for_blocks(call.list.arrived, round + 4);
  }
  if (is_empty(counts)) return;
  resolve_all(selecting, counts);
  forget(call.list);
}

}  // namespace

template <bool kSelects>
cudaError_t launch_missing(SelectingCall<kSelects> const& selecting, int64_t num_ids,
                           cudaStream_t stream) {
  auto* const kernel = missing_kernel<kSelects>;
  // No more blocks than this GPU has room for at the same time, since they wait for each other.
  // Most batches give them nothing to do.
  auto const room = blocks_side_by_side(kernel, 0);
  auto const blocks = std::max<int64_t>(1, std::min(room, ceil_div(num_ids, kThreads)));
  return launch_early(kernel, blocks, stream, selecting);
}

template cudaError_t launch_missing(SelectingCall<false> const&, int64_t, cudaStream_t);
template cudaError_t launch_missing(SelectingCall<true> const&, int64_t, cudaStream_t);

}  // namespace dynemb::cuda
