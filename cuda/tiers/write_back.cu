// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/write_back.cu: copies rows to their home records. The only result of the call lies in
// host memory, and so nothing but homes is written here.
#include "core/tiers/tier_args.h"
#include "cuda/grid/host.h"
#include "cuda/launch.h"
#include "cuda/tiers/records.cuh"

namespace dynemb::cuda {
namespace {

constexpr int kRowsOfTurn = 8;  // that a warp looks at together

struct WriteBackCall {
  WriteBackArgs args;
  RecordParts parts;
};

__device__ __forceinline__ void write_record(RecordParts const& parts, RowTile const& tile,
                                             int64_t row, uint4* record) {
  for (auto base = tile.rank; base < parts.pieces; base += tile.lanes * kPiecesInFlight) {
    uint4 pieces[kPiecesInFlight];
#pragma unroll
    for (int k = 0; k < kPiecesInFlight; ++k) {
      auto const piece = base + k * tile.lanes;
      if (piece < parts.pieces) pieces[k] = load_piece(parts, row, piece);
    }
#pragma unroll
    for (int k = 0; k < kPiecesInFlight; ++k) {
      auto const piece = base + k * tile.lanes;
      if (piece < parts.pieces) record[piece] = pieces[k];
    }
  }
}

// Most often few of the rows are wanted, the first ones: a warp looks at some at a time.
__global__ void __launch_bounds__(kThreads)
    write_back_kernel(__grid_constant__ WriteBackCall const call) {
  auto const& args = call.args;
  auto const tile = RowTile(min(32, 1 << (32 - __clz(call.parts.pieces - 1))));
  auto const warp = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
  auto const step = int64_t{gridDim.x} * kWarpsPerBlock * kRowsOfTurn;
  for (auto base = warp * kRowsOfTurn; base < args.count; base += step) {
    auto const i = base + lane_id();
    auto slot = -1, row = -1;
    if (lane_id() < kRowsOfTurn && i < args.count) {
      slot = args.slots[i];
      row = args.rows[i];
    }
    auto const wanted = __ballot_sync(
        kFullWarp, slot >= 0 && slot < args.num_slots && row >= 0 && row < args.num_rows);
    if (wanted == 0) continue;
    for (int from = 0; from < kRowsOfTurn; from += tile.per_warp) {
      auto const lane = from + tile.index;
      auto const to = __shfl_sync(kFullWarp, slot, lane & 31);
      auto const at = __shfl_sync(kFullWarp, row, lane & 31);
      if (lane >= kRowsOfTurn || (wanted >> lane & 1) == 0) continue;
      write_record(call.parts, tile, at, record_at(args.homes, args.record_bytes, to));
    }
  }
}

}  // namespace

size_t write_back_scratch_bytes(WriteBackArgs const& /*args*/) { return 0; }

cudaError_t write_back(WriteBackArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  if (args.count == 0) return cudaSuccess;
  WriteBackCall const call{args, record_parts(args.table)};
  auto const turns = ceil_div(args.count, int64_t{kRowsOfTurn} * kWarpsPerBlock);
  return launch(write_back_kernel, persistent_blocks(turns, 1), stream, call);
}

}  // namespace dynemb::cuda
