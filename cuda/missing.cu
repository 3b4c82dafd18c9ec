// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/missing.cu: the phases of a training lookup after probes and claims of empty slots: claims
// in full buckets, store, resolve.
//
// They work on the list of the ids that the probe did not find. Its length is known on the device
// only: each phase loops until it is done, and a batch without misses costs the launches. So a
// small batch has one, whose blocks wait for each other.
#include "core/group.h"
#include "cuda/initial_rows.cuh"
#include "cuda/missing.cuh"

namespace dynemb::cuda {
namespace {

// Events of each table, counted in shared memory, so that a million of them do not meet at one
// address of the counters.
template <int kKinds>
struct Tally {
  uint32_t (&counts)[kMaxTables][kKinds];

  __device__ void clear() const {
    for (auto i = static_cast<int>(threadIdx.x); i < kMaxTables * kKinds; i += kThreads) {
      counts[i / kKinds][i % kKinds] = 0;
    }
    __syncthreads();
  }

  __device__ void add(int32_t table, int kind) const { atomicAdd(&counts[table][kind], 1u); }

  // The total of each table is there when all threads of the block have arrived.
  template <class Function>
  __device__ void for_each_table(int32_t num_tables, Function const& function) const {
    __syncthreads();
    auto const table = static_cast<int32_t>(threadIdx.x);
    if (table < num_tables) function(table, counts[table]);
  }
};

// An id of the list. The slot of a position that is not on the list is never touched here.
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

// Kernels walk the list in turns forwards and backwards: what the one before has touched last is in
// the second-level cache. The number on the list of what comes as `i`-th in one that goes
// backwards:
__device__ __forceinline__ uint32_t from_end(uint32_t i, uint32_t count) { return count - 1 - i; }

constexpr int kClaimLanes = 8;

// The tile of each of the lanes in `lanes` claims for them, one id after the other, because a
// bucket's scores are much to read for one lane.
__device__ __forceinline__ void claim_full_of_lanes(MissingCall const& call, unsigned lanes,
                                                    Missing const& own, Pending& result) {
  auto const group = TileGroup<kClaimLanes>();
  auto const first = lane_id() / kClaimLanes * kClaimLanes;
  for (auto rest = lanes & lane_mask(first, kClaimLanes); rest != 0; rest &= rest - 1) {
    auto const from = __ffs(static_cast<int>(rest)) - 1;
    auto const key = group.broadcast(own.key, from - first);
    auto const feature =
        static_cast<int32_t>(group.broadcast(static_cast<uint64_t>(own.feature), from - first));
    auto const t = call.view.features[feature].table;
    auto const& table = call.view.tables[t];
    auto const hash = hash_key(key);
    auto const bucket = local_bucket_of(table, hash);
    auto const claimed =
        claim_full(group, table, bucket_at(table, bucket), mark_of(hash), call.uses[t].clock);
    if (lane_id() == from) result = pending_full(bucket, claimed);
  }
}

// The ids that found their bucket full.
__device__ __forceinline__ void claim(MissingCall const& call, uint32_t count) {
  auto const step = gridDim.x * kThreads;
  for (auto base = blockIdx.x * kThreads + threadIdx.x / 32 * 32; base < count; base += step) {
    auto const turn = base + static_cast<uint32_t>(lane_id());
    auto const i = from_end(turn, count);
    Missing own{};
    int32_t* slot = nullptr;
    if (turn < count) {
      own = call.list.ids[i];
      slot = call.view.features[own.feature].slots + own.position;
    }
    auto const full = __ballot_sync(kFullWarp, slot != nullptr && *slot == kMissingSlot);
    if (full == 0) continue;
    Pending claimed{kRefusedSlot, kNotWon};
    claim_full_of_lanes(call, full, own, claimed);
    if ((full >> lane_id() & 1) == 0) continue;
    *slot = claimed.slot;
    call.list.ids[i].won = claimed.won;
  }
}

// A slot that a lane has brought its key into.
struct NewSlot {
  Key key;
  int32_t slot;
};

// Calls function(NewSlot) for each of the lanes in `lanes`, by all lanes of a tile.
template <class Function>
__device__ __forceinline__ void for_each_new(RowTile const& tile, unsigned lanes,
                                             NewSlot const& own, Function const& function) {
  for (int32_t base = 0; base < 32; base += tile.per_warp) {
    if ((lanes & lane_mask(base, tile.per_warp)) == 0) continue;
    auto const from = base + tile.index;
    auto const key = __shfl_sync(kFullWarp, own.key, from);
    auto const slot = __shfl_sync(kFullWarp, own.slot, from);
    if ((lanes >> from & 1) != 0) function(NewSlot{key, slot});
  }
}

// First values of new slots, all of one table: states for the lanes in `lanes`, rows for those in
// `rows`. Most states take a sector at most: then each lane writes its own.
__device__ __forceinline__ void initialize_slots(TableRef const& table, unsigned lanes,
                                                 unsigned rows, NewSlot const& own) {
  auto const filler = SlotFiller(table);
  auto const tile = RowTile::of_row(table.dim);
  auto const fill_states = [&](NewSlot const& to) { filler.fill_states(tile, to.slot); };
  if (rows != 0 && writes_rows(filler.initializer.kind)) {
    for_each_new(tile, rows, own,
                 [&](NewSlot const& to) { filler.fill_row(tile, to.key, to.slot); });
  }
  if (!filler.fills_sectors()) return for_each_new(tile, lanes, own, fill_states);
  if ((lanes >> lane_id() & 1) != 0) filler.fill_states(RowTile(1), own.slot);
}

// A lane an id.
__device__ __forceinline__ void store(MissingCall const& call, uint32_t count) {
  __shared__ uint32_t counts[kMaxTables][1];  // evicted
  auto const tally = Tally<1>{counts};
  tally.clear();
  for (auto i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads) {
    auto const missing = call.list.ids[i];
    if (missing.won == kNotWon) continue;
    auto const id = MissingId(call.view, missing);
    if (!stores(missing.won, id.table.policy)) continue;
    auto const t = id.feature.table;
    auto const slot = id.feature.slots[id.position];
    if (store_key(id.table, id.key, slot, call.uses[t].clock)) tally.add(t, 0);
  }
  tally.for_each_table(call.view.num_tables, [&](int32_t table, uint32_t const(&events)[1]) {
    if (events[0] == 0) return;
    auto* const counters = call.view.tables[table].counters;
    fetch_add(counters + kEvicted, events[0]);
    fetch_add(counters + kRows, ~uint64_t{events[0]} + 1);
    note_left(call.view.tables[table]);
  });
}

// A lane an id; then the warp writes first values where they are not written yet.
__device__ __forceinline__ void resolve_all(MissingCall const& call, uint32_t count) {
  __shared__ uint32_t counts[kMaxTables][2];  // inserted, refused
  auto const tally = Tally<2>{counts};
  tally.clear();
  auto const step = gridDim.x * kThreads;
  for (auto base = blockIdx.x * kThreads + threadIdx.x / 32 * 32; base < count; base += step) {
    auto const turn = base + static_cast<uint32_t>(lane_id());
    Missing missing{};
    Resolved now{kRefusedSlot, false};
    int32_t t = -1;
    if (turn < count) {
      missing = call.list.ids[from_end(turn, count)];
      auto const id = MissingId(call.view, missing);
      t = id.feature.table;
      auto& slot = id.feature.slots[id.position];
      now = resolve(id.table, id.key, {slot, missing.won}, call.uses[t]);
      slot = now.slot;
      if (now.is_new) tally.add(t, 0);
      if (now.slot == kRefusedSlot) tally.add(t, 1);
    }
    auto const rows = __ballot_sync(kFullWarp, now.is_new && !missing.has_row);
    for (auto rest = __ballot_sync(kFullWarp, now.is_new); rest != 0;) {
      auto const table = __shfl_sync(kFullWarp, t, __ffs(static_cast<int>(rest)) - 1);
      auto const same = rest & __ballot_sync(kFullWarp, t == table);
      initialize_slots(call.view.tables[table], same, same & rows, {missing.key, now.slot});
      rest &= ~same;
    }
  }
  tally.for_each_table(call.view.num_tables, [&](int32_t table, uint32_t const(&events)[2]) {
    auto* const counters = call.view.tables[table].counters;
    if (events[0] != 0) {
      fetch_add(counters + kInserted, events[0]);
      fetch_add(counters + kRows, events[0]);
    }
    if (events[1] != 0) fetch_add(counters + kRefused, events[1]);
  });
}

// By the blocks of the first kernel.
__device__ __forceinline__ void count_lookup(MissingCall const& call) {
  auto const warp = static_cast<int32_t>(blockIdx.x * kWarpsPerBlock + threadIdx.x / 32);
  auto const warps = static_cast<int32_t>(gridDim.x * kWarpsPerBlock);
  for (auto t = warp; t < call.view.num_tables; t += warps) set_counters(call.counted[t]);
}

// Between phases, for all blocks of the grid. They are no more than the GPU has room for, and a
// later kernel gets room when all blocks of an earlier one have theirs: so none waits for one that
// has to wait for it. Who has arrived for the `round`-th time sees what all have written before.
__device__ __forceinline__ void wait_for_grid(uint32_t* arrived, uint32_t round) {
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
__device__ __forceinline__ void forget(MissingList const& list, uint32_t rounds) {
  if (threadIdx.x != 0) return;
  if (atomicAdd(list.arrived, 1u) == (rounds + 1) * gridDim.x - 1) *list.counts = {0, 0};
}

__device__ __forceinline__ bool has_to_store(MissingCall const& call, MissingCounts const& counts) {
  return counts.full != 0 || (counts.ids != 0 && call.counts_uses);
}

// Out of line, where the other phases have no registers to give.
__device__ __noinline__ void claim_apart(MissingCall const& call, uint32_t count) {
  claim(call, count);
}

// All phases of a small batch. (A constant of the grid: else each thread would copy the call, to
// have an address for what is out of line.)
__global__ void __launch_bounds__(kThreads, 3)
    missing_kernel(__grid_constant__ MissingCall const call) {
  auto const counts = *call.list.counts;
  count_lookup(call);
  if (counts.ids == 0) return;
  auto const waits = has_to_store(call, counts);
  if (waits) {
    if (counts.full != 0) claim_apart(call, counts.ids);
    wait_for_grid(call.list.arrived, 1);
    store(call, counts.ids);
    wait_for_grid(call.list.arrived, 2);
  }
  resolve_all(call, counts.ids);
  forget(call.list, waits ? 2 : 0);
}

// A phase each: of a large batch, for which each wants another number of blocks.
__global__ void __launch_bounds__(kThreads, 3) claim_kernel(MissingCall const call) {
  auto const counts = *call.list.counts;
  count_lookup(call);
  if (counts.full != 0) claim(call, counts.ids);
}

__global__ void __launch_bounds__(kThreads) store_kernel(MissingCall const call) {
  auto const counts = *call.list.counts;
  if (has_to_store(call, counts)) store(call, counts.ids);
}

__global__ void __launch_bounds__(kThreads, 3) resolve_kernel(MissingCall const call) {
  auto const counts = *call.list.counts;
  if (counts.ids == 0) return;
  resolve_all(call, counts.ids);
  forget(call.list, 0);
}

}  // namespace

cudaError_t launch_missing(MissingCall const& call, int64_t num_ids, cudaStream_t stream) {
  // As many blocks as work at the same time: most batches give them nothing to do.
  auto const most = ceil_div(num_ids, kThreads);
  if (num_ids <= kSmallBatch) {
    return launch(missing_kernel, persistent_blocks(most, 3), stream, call);
  }
  DYNEMB_CUDA_TRY(launch(claim_kernel, persistent_blocks(most, 3), stream, call));
  DYNEMB_CUDA_TRY(launch(store_kernel, persistent_blocks(most, 8), stream, call));
  return launch(resolve_kernel, persistent_blocks(most, 3), stream, call);
}

}  // namespace dynemb::cuda
