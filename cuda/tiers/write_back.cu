// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/write_back.cu: copies rows to their home records, and other records to rows.
#include <algorithm>

#include "core/tiers/tier_args.h"
#include "cuda/grid/call.cuh"
#include "cuda/grid/host.h"
#include "cuda/launch.h"
#include "cuda/tiers/records.cuh"
#include "cuda/tiers/swap_beside.h"

namespace dynemb::cuda {
namespace {

// What a swap needs of one table.
struct SwappedTable {
  RecordParts parts;
  uint8_t* homes;
  int64_t record_bytes;
  int64_t num_slots;
  int64_t num_rows;
  int32_t const* counts;
  int64_t count;
  int32_t const* slots;
  int32_t const* rows;
  int64_t num_arriving;
  int32_t const* arriving;
  int32_t const* into;
};

struct SwapCall {
  int32_t num_tables;
  bool marks;  // of swap_rows
  SwappedTable tables[kMaxTierTables];
};

// Entries of a list that a warp looks at together, a lane each.
struct Entries {
  int32_t slot, row;
  unsigned wanted;  // a bit for each lane whose entry is one

  __device__ __forceinline__ Entries(SwappedTable const& args, int32_t const* slots,
                                     int32_t const* rows, int64_t i, int64_t count)
      : slot(-1), row(-1) {
    if (i < count) {
      slot = slots[i];
      row = rows[i];
    }
    auto const exists = slot >= 0 && slot < args.num_slots && row >= 0 && row < args.num_rows;
    wanted = __ballot_sync(kFullWarp, exists);
  }

  __device__ __forceinline__ bool has(int lane) const { return (wanted >> lane & 1) != 0; }
};

// Says how many entries of each list count.
struct ListCounts {
  int32_t out, in;
};

__device__ __forceinline__ ListCounts counts_of(SwappedTable const& table) {
  return {static_cast<int32_t>(entries_of(table.counts, 0, table.count)),
          static_cast<int32_t>(entries_of(table.counts, 1, table.num_arriving))};
}

// Lists are in order of address. Warps take entries by turns, so that all of them work on
// neighbouring addresses: over a few GiB the translation of addresses slows the bus down. A warp
// looks at its next 32 entries together.
template <int kWarps>
__device__ __forceinline__ void swap_lists(SwappedTable const& table, ListCounts const& counts) {
  auto const most = max(counts.out, counts.in);
  if (most == 0) return;
  auto const tile = RowTile(lanes_of_record(table.parts));
  auto const warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  auto const warps = int64_t{gridDim.x} * kWarps;
  for (int64_t base = 0; base < most; base += 32 * warps) {
    auto const i = base + lane_id() * warps + warp;
    auto const out = Entries(table, table.slots, table.rows, i, counts.out);
    auto const in = Entries(table, table.arriving, table.into, i, counts.in);
    auto const wanted = out.wanted | in.wanted;
    for (int from = 0; from < 32; from += tile.per_warp) {
      if ((wanted & lane_mask(from, tile.per_warp)) == 0) continue;
      auto const lane = from + tile.index;
      auto const leaving = __shfl_sync(kFullWarp, out.slot, lane);
      auto const from_row = __shfl_sync(kFullWarp, out.row, lane);
      auto const arriving = __shfl_sync(kFullWarp, in.slot, lane);
      auto const to_row = __shfl_sync(kFullWarp, in.row, lane);
      auto* const homes = table.homes;
      swap_records(table.parts, tile,
                   {in.has(lane) ? record_at(homes, table.record_bytes, arriving) : nullptr,
                    in.has(lane) ? to_row : -1, from_row,
                    out.has(lane) ? record_at(homes, table.record_bytes, leaving) : nullptr});
    }
  }
}

// Calls swap(t, counts) for each table. A lane reads the counts of a table, all at once: the tables
// follow each other without a wait.
template <class Swap>
__device__ __forceinline__ void for_each_table(SwapCall const& call, Swap const& swap) {
  static_assert(kMaxTierTables <= 32, "a lane each");
  ListCounts own{0, 0};
  if (lane_id() < call.num_tables) own = counts_of(*in_memory(call.tables + lane_id()));
  for (int32_t t = 0; t < call.num_tables; ++t) {
    swap(t, {__shfl_sync(kFullWarp, own.out, t), __shfl_sync(kFullWarp, own.in, t)});
  }
}

template <int kWarps>
__global__ void __launch_bounds__(32 * kWarps)
    swap_rows_kernel(__grid_constant__ SwapCall const call) {
  if (call.marks && blockIdx.x == 0 && threadIdx.x < static_cast<uint32_t>(call.num_tables)) {
    auto const& table = *in_memory(call.tables + threadIdx.x);
    set_marks(table.parts, table.num_rows - 1, kThere);
  }
  __syncwarp();
  for_each_table(call, [&](int32_t t, ListCounts const& counts) {
    swap_lists<kWarps>(call.tables[t], counts);
  });
}

__global__ void __launch_bounds__(kThreads) settle_kernel(__grid_constant__ SwapCall const call) {
  auto settled = true;
  if (lane_id() < call.num_tables) {  // a lane each, as above
    auto const& table = *in_memory(call.tables + lane_id());
    settled = has_marks(table.parts, table.num_rows - 1);
  }
  auto const missing = __ballot_sync(kFullWarp, !settled);
  if (missing == 0) return;
  for_each_table(call, [&](int32_t t, ListCounts const& counts) {
    if ((missing >> t & 1) != 0) swap_lists<kWarpsPerBlock>(call.tables[t], counts);
  });
}

// Returns the most warps that the lists of all tables keep busy.
int64_t useful_warps(SwapCall const& call) {
  int64_t most = 0;
  for (int32_t t = 0; t < call.num_tables; ++t) {
    most += std::max(call.tables[t].count, call.tables[t].num_arriving);
  }
  return most;
}

// Returns the blocks for them.
int64_t swap_blocks(SwapCall const& call) {
  auto const warps = useful_warps(call);
  return warps == 0 ? 0 : bus_blocks(ceil_div(warps, kWarpsPerBlock));
}

SwapCall swap_call(WriteBackArgs const& args, bool marks) {
  SwapCall call{args.num_tables, marks, {}};
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const& one = args.tables[t];
    call.tables[t] = {record_parts(one.table),
                      one.homes,
                      one.record_bytes,
                      one.num_slots,
                      one.num_rows,
                      one.counts,
                      one.count,
                      one.slots,
                      one.rows,
                      one.num_arriving,
                      one.arriving,
                      one.into};
  }
  return call;
}

cudaError_t run_swap(WriteBackArgs const& args, bool marks, cudaStream_t stream) {
  auto const call = swap_call(args, marks);
  auto const blocks = swap_blocks(call);
  if (blocks == 0) return cudaSuccess;
  return launch(swap_rows_kernel<kWarpsPerBlock>, blocks, stream, call);
}

}  // namespace

size_t write_back_scratch_bytes(WriteBackArgs const& /*args*/) { return 0; }
size_t swap_rows_scratch_bytes(WriteBackArgs const& /*args*/) { return 0; }

cudaError_t swap_rows(WriteBackArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  return run_swap(args, true, stream);
}

cudaError_t write_back(WriteBackArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  return run_swap(args, false, stream);
}

// In the largest blocks, and no more of them than the bus needs: those of a matrix product find no
// room on the multiprocessors that they occupy. A block moves 6 to 8 GB a second each way.
cudaError_t swap_rows_beside(WriteBackArgs const& args, cudaStream_t stream) {
  constexpr int kWarps = 32;
  constexpr int64_t kBlocks = 6;
  auto const call = swap_call(args, true);
  auto const warps = useful_warps(call);
  if (warps == 0) return cudaSuccess;
  auto const blocks = bus_blocks(std::min(ceil_div(warps, kWarps), kBlocks));
  return launch(swap_rows_kernel<kWarps>, blocks, stream, call, 0, 32 * kWarps);
}

size_t settle_scratch_bytes(SettleArgs const& /*args*/) { return 0; }

cudaError_t settle(SettleArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  SwapCall call{args.num_tables, false, {}};
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const& one = args.tables[t];
    call.tables[t] = {record_parts(one.table),
                      const_cast<uint8_t*>(one.tier.homes),
                      one.tier.record_bytes,
                      one.table.local_buckets * kBucketCapacity,
                      one.num_rows,
                      one.counts,
                      0,
                      nullptr,
                      nullptr,
                      one.num_arriving,
                      one.arriving,
                      one.into};
  }
  auto const blocks = swap_blocks(call);
  return blocks == 0 ? cudaSuccess : launch(settle_kernel, blocks, stream, call);
}

}  // namespace dynemb::cuda
