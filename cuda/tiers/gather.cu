// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/gather.cu: rows and states of slots as they are stored, wherever they lie.
#include "core/slot.h"
#include "core/tiers/tier_args.h"
#include "cuda/grid/host.h"
#include "cuda/launch.h"
#include "cuda/tiers/first_row.cuh"
#include "cuda/tiers/records.cuh"

namespace dynemb::cuda {
namespace {

struct TierGatherCall {
  TierGatherArgs args;
  RecordParts stored;
  RecordParts given;
  bool vectors;  // of the values
};

__device__ __forceinline__ FirstRow stored_at(TierGatherCall const& call, int64_t i) {
  auto const& args = call.args;
  FirstRow to{static_cast<char*>(args.values) + i * row_bytes_of(args.table), call.vectors, {}};
#pragma unroll
  for (int s = 0; s < kMaxStates; ++s) {
    if (s < args.table.num_states) to.states[s] = args.states[s] + i * args.table.state_width[s];
  }
  return to;
}

__global__ void __launch_bounds__(kThreads)
    tier_gather_kernel(__grid_constant__ TierGatherCall const call) {
  auto const& args = call.args;
  auto const lanes = lanes_of_record(call.stored);
  auto const tile = RowTile(lanes);
  auto const step = int64_t{gridDim.x} * kThreads / lanes;
  for (auto i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / lanes; i < args.num_slots;
       i += step) {
    auto const slot = args.slots[i];
    auto const live = is_live(slot, num_slots(args.table));
    if (live && is_fresh(args.tier, slot)) {
      draw_row(args.table, tile, *key_at(args.table, slot), stored_at(call, i));
      continue;
    }
    auto const row = live ? cached_row(args.tier, slot) : -1;
    auto const* const record =
        record_at(args.tier.homes, args.tier.record_bytes, live && row < 0 ? slot : 0);
    for (auto base = tile.rank; base < call.stored.pieces; base += lanes * kPiecesInFlight) {
      uint4 pieces[kPiecesInFlight];
#pragma unroll
      for (int k = 0; k < kPiecesInFlight; ++k) {
        auto const piece = base + k * lanes;
        pieces[k] = {0, 0, 0, 0};
        if (!live || piece >= call.stored.pieces) continue;
        pieces[k] = row < 0 ? record[piece] : load_piece(call.stored, row, piece);
      }
#pragma unroll
      for (int k = 0; k < kPiecesInFlight; ++k) {
        auto const piece = base + k * lanes;
        if (piece < call.stored.pieces) store_piece(call.given, i, piece, pieces[k]);
      }
    }
  }
}

}  // namespace

size_t tier_gather_scratch_bytes(TierGatherArgs const& /*args*/) { return 0; }

cudaError_t tier_gather(TierGatherArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  if (args.num_slots == 0) return cudaSuccess;
  auto result = args.table;
  result.values = args.values;
  for (int s = 0; s < result.num_states; ++s) result.states[s] = args.states[s];
  TierGatherCall const call{args, record_parts(args.table), record_parts(result),
                            moves_vectors(args.values, args.table.dim)};
  auto const blocks = ceil_div(args.num_slots * lanes_of_record(call.stored), int64_t{kThreads});
  return launch(tier_gather_kernel, persistent_blocks(blocks, 2), stream, call);
}

}  // namespace dynemb::cuda
