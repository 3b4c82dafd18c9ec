// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/write_back.cu: copies rows to their home records, and other records to rows.
#include "core/tiers/tier_args.h"
#include "cuda/grid/host.h"
#include "cuda/launch.h"
#include "cuda/tiers/records.cuh"

namespace dynemb::cuda {
namespace {

struct WriteBackCall {
  WriteBackArgs args;
  RecordParts parts;
  bool marks;  // of swap_rows
};

struct SettleCall {
  WriteBackCall rest;  // what swap_rows was to bring
  int64_t mark_row;
};

// Entries of a list that a warp looks at together, a lane each.
struct Entries {
  int32_t slot, row;
  unsigned wanted;  // a bit for each lane whose entry is one

  __device__ __forceinline__ Entries(WriteBackArgs const& args, int32_t const* slots,
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

// Lists are in order of address, and often much longer than what stands in them. Warps take entries
// by turns, so that all of them work on neighbouring addresses: over a few GiB the translation of
// addresses slows the bus down. A warp looks at its next 32 entries together.
__device__ __forceinline__ void swap_lists(WriteBackCall const& call) {
  auto const& args = call.args;
  auto const tile = RowTile(lanes_of_record(call.parts));
  auto const warp = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
  auto const warps = int64_t{gridDim.x} * kWarpsPerBlock;
  auto const most = max(args.count, args.num_arriving);
  for (int64_t base = 0; base < most; base += 32 * warps) {
    auto const i = base + lane_id() * warps + warp;
    auto const out = Entries(args, args.slots, args.rows, i, args.count);
    auto const in = Entries(args, args.arriving, args.into, i, args.num_arriving);
    auto const wanted = out.wanted | in.wanted;
    for (int from = 0; from < 32; from += tile.per_warp) {
      if ((wanted & lane_mask(from, tile.per_warp)) == 0) continue;
      auto const lane = from + tile.index;
      auto const leaving = __shfl_sync(kFullWarp, out.slot, lane);
      auto const from_row = __shfl_sync(kFullWarp, out.row, lane);
      auto const arriving = __shfl_sync(kFullWarp, in.slot, lane);
      auto const to_row = __shfl_sync(kFullWarp, in.row, lane);
      auto* const homes = args.homes;
      swap_records(call.parts, tile,
                   {in.has(lane) ? record_at(homes, args.record_bytes, arriving) : nullptr,
                    in.has(lane) ? to_row : -1, from_row,
                    out.has(lane) ? record_at(homes, args.record_bytes, leaving) : nullptr});
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    swap_rows_kernel(__grid_constant__ WriteBackCall const call) {
  if (call.marks && blockIdx.x == 0 && threadIdx.x == 0) {
    set_marks(call.parts, call.args.num_rows - 1, kThere);
  }
  swap_lists(call);
}

__global__ void __launch_bounds__(kThreads) settle_kernel(__grid_constant__ SettleCall const call) {
  if (!has_marks(call.rest.parts, call.mark_row)) swap_lists(call.rest);
}

}  // namespace

size_t write_back_scratch_bytes(WriteBackArgs const& /*args*/) { return 0; }
size_t swap_rows_scratch_bytes(WriteBackArgs const& /*args*/) { return 0; }

cudaError_t swap_rows(WriteBackArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  auto const most = std::max(args.count, args.num_arriving);
  if (most == 0) return cudaSuccess;
  WriteBackCall const call{args, record_parts(args.table), args.arriving != nullptr};
  return launch(swap_rows_kernel, bus_blocks(ceil_div(most, kWarpsPerBlock)), stream, call);
}

cudaError_t write_back(WriteBackArgs const& args, void* scratch, cudaStream_t stream) {
  return swap_rows(args, scratch, stream);
}

size_t settle_scratch_bytes(SettleArgs const& /*args*/) { return 0; }

cudaError_t settle(SettleArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  if (args.num_arriving == 0) return cudaSuccess;
  auto const slots = args.table.local_buckets * kBucketCapacity;
  WriteBackArgs rest{args.table,
                     args.num_rows,
                     const_cast<uint8_t*>(args.tier.homes),
                     slots,
                     args.tier.record_bytes,
                     0,
                     nullptr,
                     nullptr};
  rest.num_arriving = args.num_arriving;
  rest.arriving = args.arriving;
  rest.into = args.into;
  SettleCall const call{{rest, record_parts(args.table), false}, args.num_rows - 1};
  return launch(settle_kernel, bus_blocks(ceil_div(args.num_arriving, kWarpsPerBlock)), stream,
                call);
}

}  // namespace dynemb::cuda
