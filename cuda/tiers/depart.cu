// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/depart.cu: departed rows to the records of their ring (core/tiers/tier_args.h).
#include "core/slot.h"
#include "core/tiers/tier_args.h"
#include "cuda/grid/host.h"
#include "cuda/launch.h"
#include "cuda/tiers/first_row.cuh"
#include "cuda/tiers/records.cuh"

namespace dynemb::cuda {
namespace {

struct DepartCall {
  DepartArgs args;
  RecordParts parts;
  bool vectors;  // of the row in a record
};

// The departures whose records are not there yet: numbers of notes.
struct Uncopied {
  uint32_t begin, end;

  __device__ __forceinline__ explicit Uncopied(Departures const& departures) {
    end = min(departures.ring[kRingCount], departures.room);
    begin = min(departures.ring[kRingCopied], end);
  }
};

__device__ __forceinline__ FirstRow row_of_record(DepartCall const& call, uint8_t* record) {
  auto const& table = call.args.table;
  FirstRow to{record, call.vectors, {}};
#pragma unroll
  for (int s = 0; s < kMaxStates; ++s) {
    if (s >= table.num_states) break;
    to.states[s] = reinterpret_cast<float*>(record + call.parts.part[s + 1].offset);
  }
  return to;
}

// The lanes of a tile call this.
__device__ __forceinline__ void copy_departed(DepartCall const& call, RowTile const& tile,
                                              Departure const& note, uint8_t* record) {
  auto const& table = call.args.table;
  auto const& tier = call.args.tier;
  auto const slots = static_cast<uint32_t>(table.local_buckets * kBucketCapacity);
  auto const live = is_live(note.slot, slots);
  if (live && is_fresh_location(note.location)) {
    draw_row(table, tile, note.key, row_of_record(call, record));
    return;
  }
  auto const frame = live ? frame_of(tier, note.slot, note.location) : -1;
  auto const row = frame < 0 ? -1 : frame_row(tier, note.slot / kBucketCapacity, frame);
  auto const* const home = record_at(tier.homes, tier.record_bytes, live ? note.slot : 0);
  auto* const to = reinterpret_cast<uint4*>(record);
  for (auto base = tile.rank; base < call.parts.pieces; base += tile.lanes * kPiecesInFlight) {
    uint4 pieces[kPiecesInFlight];
#pragma unroll
    for (int k = 0; k < kPiecesInFlight; ++k) {
      auto const piece = base + k * tile.lanes;
      pieces[k] = {0, 0, 0, 0};
      if (!live || piece >= call.parts.pieces) continue;
      pieces[k] = row < 0 ? home[piece] : load_piece(call.parts, row, piece);
    }
#pragma unroll
    for (int k = 0; k < kPiecesInFlight; ++k) {
      auto const piece = base + k * tile.lanes;
      if (piece < call.parts.pieces) to[piece] = pieces[k];
    }
  }
}

__global__ void __launch_bounds__(kThreads) depart_kernel(__grid_constant__ DepartCall const call) {
  auto const& args = call.args;
  auto const lanes = lanes_of_record(call.parts);
  auto const tile = RowTile(lanes);
  auto const uncopied = Uncopied(args.departures);
  auto const first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / lanes;
  auto const step = int64_t{gridDim.x} * kThreads / lanes;
  for (auto i = uncopied.begin + first; i < uncopied.end; i += step) {
    auto const note = *departure_at(args.departures.ring, static_cast<uint32_t>(i));
    copy_departed(call, tile, note, args.records + i * args.tier.record_bytes);
  }
}

// When all blocks have read the header.
__global__ void __launch_bounds__(kThreads)
    count_departed_kernel(__grid_constant__ DepartArgs const args) {
  if (threadIdx.x != 0) return;
  auto const uncopied = Uncopied(args.departures);
  auto* const ring = args.departures.ring;
  count_in_tier(args.tier, kTierDeparted, uncopied.end - uncopied.begin);
  count_in_tier(args.tier, kTierRingFull, ring[kRingRefused]);
  ring[kRingCopied] = uncopied.end;
  ring[kRingRefused] = 0;
}

}  // namespace

size_t depart_scratch_bytes(DepartArgs const& /*args*/) { return 0; }

cudaError_t depart(DepartArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  DepartCall const call{args, record_parts(args.table),
                        moves_vectors(args.records, args.table.dim)};
  auto const lanes = lanes_of_record(call.parts);
  auto const blocks = ceil_div(int64_t{args.departures.room} * lanes, int64_t{kThreads});
  DYNEMB_CUDA_TRY(launch(depart_kernel, bus_blocks(blocks), stream, call));
  return launch(count_departed_kernel, 1, stream, args);
}

}  // namespace dynemb::cuda
