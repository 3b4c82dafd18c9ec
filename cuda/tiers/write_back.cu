// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/write_back.cu: copies rows to their home records, and other records to rows.
#include <algorithm>

#include "core/tiers/tier_args.h"
#include "cuda/grid/call.cuh"
#include "cuda/grid/host.h"
#include "cuda/launch.h"
#include "cuda/tiers/records.cuh"

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

struct Entry {
  int32_t slot, row;  // or -1 each
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
    if (!exists) slot = row = -1;
  }

  // The entry of a lane, by all lanes; none behind the last lane.
  __device__ __forceinline__ Entry of(int lane) const {
    auto const its_slot = __shfl_sync(kFullWarp, slot, lane & 31);
    auto const its_row = __shfl_sync(kFullWarp, row, lane & 31);
    return lane < 32 ? Entry{its_slot, its_row} : Entry{-1, -1};
  }
};

// Up to 32 records in and as many out, by a warp. A tile moves a record, or several narrow ones at
// once: a lane has kPiecesInFlight pieces on their way in each direction, and with fewer the bus
// would wait for answers. All loads come before all stores, so that both directions of it work.
class EntrySwap {
 public:
  __device__ __forceinline__ EntrySwap(SwappedTable const& table, Entries const& out,
                                       Entries const& in)
      : table_(table), out_(out), in_(in), tile_(lanes_of_record(table.parts)) {
    auto const of_lane = (table.parts.pieces + tile_.lanes - 1) / tile_.lanes;
    log_pieces_ = of_lane == 1 ? 0 : of_lane == 2 ? 1 : 2;
  }

  __device__ __forceinline__ void run() const {
    static_assert(kPiecesInFlight == 4);
    auto const wanted = out_.wanted | in_.wanted;
    auto const records = tile_.per_warp * (kPiecesInFlight >> log_pieces_);
    for (int from = 0; from < 32; from += records) {
      if ((wanted & lane_mask(from, min(32 - from, records))) == 0) continue;
      for (int base = 0; base < table_.parts.pieces; base += tile_.lanes << log_pieces_) {
        move(from, base);
      }
    }
  }

 private:
  // The entry whose piece number k of a lane is.
  __device__ __forceinline__ int lane_of(int from, int k) const {
    return from + (k >> log_pieces_) * tile_.per_warp + tile_.index;
  }

  __device__ __forceinline__ int piece_of(int base, int k) const {
    return base + (k & ((1 << log_pieces_) - 1)) * tile_.lanes + tile_.rank;
  }

  // Pieces from `base` on of the records of lanes from `from` on.
  __device__ __forceinline__ void move(int from, int base) const {
    auto const& parts = table_.parts;
    uint4 far[kPiecesInFlight], near[kPiecesInFlight];
    int32_t to_row[kPiecesInFlight], to_slot[kPiecesInFlight];
#pragma unroll
    for (int k = 0; k < kPiecesInFlight; ++k) {
      auto const piece = piece_of(base, k);
      auto const entry = in_.of(lane_of(from, k));
      to_row[k] = piece < parts.pieces ? entry.row : -1;
      if (to_row[k] >= 0) far[k] = record(entry.slot)[piece];
    }
#pragma unroll
    for (int k = 0; k < kPiecesInFlight; ++k) {
      auto const piece = piece_of(base, k);
      auto const entry = out_.of(lane_of(from, k));
      to_slot[k] = piece < parts.pieces ? entry.slot : -1;
      if (to_slot[k] >= 0) near[k] = load_piece(parts, entry.row, piece);
    }
#pragma unroll
    for (int k = 0; k < kPiecesInFlight; ++k) {
      if (to_slot[k] >= 0) record(to_slot[k])[piece_of(base, k)] = near[k];
    }
#pragma unroll
    for (int k = 0; k < kPiecesInFlight; ++k) {
      if (to_row[k] >= 0) store_piece(parts, to_row[k], piece_of(base, k), far[k]);
    }
  }

  __device__ __forceinline__ uint4* record(int32_t slot) const {
    return record_at(table_.homes, table_.record_bytes, slot);
  }

  SwappedTable const& table_;
  Entries const& out_;
  Entries const& in_;
  RowTile const tile_;
  int log_pieces_;  // that a lane moves of one record at once
};

// How many entries of each list count.
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
__device__ __forceinline__ void swap_lists(SwappedTable const& table, ListCounts const& counts) {
  auto const warp = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
  auto const warps = int64_t{gridDim.x} * kWarpsPerBlock;
  auto const most = max(counts.out, counts.in);
  for (int64_t base = 0; base < most; base += 32 * warps) {
    auto const i = base + lane_id() * warps + warp;
    auto const out = Entries(table, table.slots, table.rows, i, counts.out);
    auto const in = Entries(table, table.arriving, table.into, i, counts.in);
    EntrySwap(table, out, in).run();
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

__global__ void __launch_bounds__(kThreads)
    swap_rows_kernel(__grid_constant__ SwapCall const call) {
  if (call.marks && blockIdx.x == 0 && threadIdx.x < static_cast<uint32_t>(call.num_tables)) {
    auto const& table = *in_memory(call.tables + threadIdx.x);
    set_marks(table.parts, table.num_rows - 1, kThere);
  }
  __syncwarp();
  for_each_table(call,
                 [&](int32_t t, ListCounts const& counts) { swap_lists(call.tables[t], counts); });
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
    if ((missing >> t & 1) != 0) swap_lists(call.tables[t], counts);
  });
}

// Blocks for the lists of all tables.
int64_t swap_blocks(SwapCall const& call) {
  int64_t most = 0;
  for (int32_t t = 0; t < call.num_tables; ++t) {
    most += std::max(call.tables[t].count, call.tables[t].num_arriving);
  }
  return most == 0 ? 0 : bus_blocks(ceil_div(most, kWarpsPerBlock));
}

cudaError_t run_swap(WriteBackArgs const& args, bool marks, cudaStream_t stream) {
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
  auto const blocks = swap_blocks(call);
  if (blocks == 0) return cudaSuccess;
  return launch(swap_rows_kernel, blocks, stream, call);
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
