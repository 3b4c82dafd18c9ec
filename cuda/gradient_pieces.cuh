// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradient_pieces.cuh: runs of equal slots, cut into pieces that can be summed by themselves.
//
// A run is all sorted positions of one row. A piece is up to 32 of them, counted from the run's own
// start, so that a sum does not depend on where the run lies. A block takes the pieces that start
// among its 256 sorted positions. The sum of a piece that is its whole run goes straight to the
// row; the sums of the pieces of longer runs go to scratch rows, for cuda/gradient_long_runs.cuh.
#pragma once

#include <cstdint>

#include "core/feature_ref.h"
#include "cuda/gradient_order.cuh"
#include "cuda/row_format.cuh"
#include "cuda/tile_group.cuh"

namespace dynemb::cuda {

constexpr int kPiece = 32;        // sorted positions
constexpr int kGroupPieces = 64;  // pieces of a long run that one block adds up

// The scratch row of piece `index` of the run of `num_pieces` > 1 pieces that starts at `start`.
// A piece that is not the last of its run has 32 positions to itself, which gives it an even number
// of its own; the last piece takes the odd number beside the one before it.
__host__ __device__ __forceinline__ int64_t partial_row(int64_t start, int64_t index,
                                                        int64_t num_pieces) {
  auto const full = start / kPiece + index;
  return index < num_pieces - 1 ? 2 * full : 2 * (full - 1) + 1;
}

// A run of more than one piece.
struct LongRun {
  int64_t start;
  int64_t num_pieces;
  int32_t table;
  int32_t slot;
  uint32_t first_item;
  uint32_t arrived;  // groups whose sums are complete
};

struct GroupTask {
  uint32_t run;
  uint32_t group;  // of the run's pieces
};

struct LongRuns {
  LongRun* runs;
  GroupTask* tasks;
  uint32_t* num_runs;   // [1]
  uint32_t* num_tasks;  // [1]
  float* partial;       // [rows, stride]
  int32_t stride;       // a multiple of 4
};

// What is known of a position of the block: where its gradient lies and its factor.
struct GradientRow {
  char const* row;
  float factor;
  uint16_t type;
  uint16_t vector;
};

struct Piece {
  int64_t partial;  // its scratch row, or -1: the piece is its whole run
  uint32_t first_item;
  int32_t slot;
  int16_t table;
  int16_t first;  // position in the block
  int32_t count;
};

constexpr int kBlockPositions = kThreads;
constexpr int kSeenPositions = kBlockPositions + kPiece;  // a piece may end in the next block

struct PieceMemory {
  GradientRow rows[kSeenPositions];
  Piece pieces[kBlockPositions];
  unsigned heads[kSeenPositions / 32];  // a bit for each position at which a run begins
  int64_t first_run_start;              // of the run at the block's first position
  int32_t num_pieces;
  int32_t max_dim;
};

template <class SortKey>
struct PieceCutter {
  CallView const& view;
  SortedGradients<SortKey> const& sorted;
  LongRuns const& long_runs;
  PieceMemory& memory;

  __device__ __forceinline__ int64_t block_start() const {
    return int64_t{blockIdx.x} * kBlockPositions;
  }

  // The end of the array reads as one more key that no row has.
  __device__ __forceinline__ SortKey key_at_position(int64_t p) const {
    return p < sorted.num_items ? sorted.keys[p] : sorted.total_slots;
  }

  __device__ __forceinline__ bool is_head(int64_t p) const {
    return p == 0 || p >= sorted.num_items || sorted.keys[p] != sorted.keys[p - 1];
  }

  // The start of the run that covers `p`, by all lanes of a warp: first the 32 positions before,
  // then a search that cuts what is left into 32 parts at a time.
  __device__ int64_t run_start(int64_t p) const {
    auto const key = sorted.keys[p];
    auto const near = p - 1 - lane_id();
    auto const other =
        __ballot_sync(kFullWarp, near < 0 || sorted.keys[near < 0 ? 0 : near] != key);
    if (other != 0) return p - (__ffs(static_cast<int>(other)) - 1);
    int64_t low = 0, high = p - 32;  // low <= start <= high
    while (low < high) {
      auto const step = (high - low + 31) / 32;
      auto const probe = min(low + lane_id() * step, high);
      auto const same = __ballot_sync(kFullWarp, sorted.keys[probe] == key);
      auto const first = same == 0 ? 32 : __ffs(static_cast<int>(same)) - 1;
      auto const next_high = first == 32 ? high : min(low + first * step, high);
      low = first == 0 ? low : min(low + (first - 1) * step + 1, next_high);
      high = next_high;
    }
    return low;
  }

  __device__ __forceinline__ GradientRow gradient_row(uint32_t item) const {
    auto const place = place_of(view, item);
    auto const& feature = view.features[place.feature];
    auto const dim = view.tables[feature.table].dim;
    auto const bag = bag_of(feature, place.position);
    auto const format = AnyFormat{feature.row_type, moves_vectors(feature.rows, dim)};
    return {row_pointer(format, const_cast<void const*>(feature.rows), bag, dim),
            gradient_factor(feature, bag, place.position), static_cast<uint16_t>(format.type),
            static_cast<uint16_t>(format.vector)};
  }

  // Heads of the block and of the 32 positions after it, and the run that the block begins in.
  __device__ void find_heads() const {
    auto const thread = static_cast<int>(threadIdx.x);
    auto const warp = thread / 32;
    auto const p = block_start() + thread;
    auto const word = __ballot_sync(kFullWarp, is_head(p));
    if (lane_id() == 0) memory.heads[warp] = word;
    if (warp != 0) return;
    auto const after = __ballot_sync(kFullWarp, is_head(block_start() + kBlockPositions + thread));
    auto const start = (word & 1) != 0 ? block_start() : run_start(block_start());
    if (thread != 0) return;
    memory.heads[kBlockPositions / 32] = after;
    memory.first_run_start = start;
    memory.num_pieces = 0;
    memory.max_dim = 1;
  }

  // The last head at or before position `i` of the block.
  __device__ __forceinline__ int64_t start_of_run_at(int i) const {
    auto word = i / 32;
    auto bits = memory.heads[word] & (kFullWarp >> (31 - i % 32));
    while (bits == 0 && word > 0) bits = memory.heads[--word];
    return bits == 0 ? memory.first_run_start
                     : block_start() + word * 32 + 31 - __clz(static_cast<int>(bits));
  }

  // Positions from i to the end of its run, or 33 if there are more than 32.
  __device__ __forceinline__ int left_of_run_at(int i) const {
    auto const both = uint64_t{memory.heads[i / 32]} | uint64_t{memory.heads[i / 32 + 1]} << 32;
    auto const next = static_cast<uint32_t>(both >> (i % 32) >> 1);
    return next == 0 ? kPiece + 1 : __ffs(static_cast<int>(next));
  }

  __device__ void append_long_run(int64_t start, int64_t num_pieces, Piece const& last) const {
    auto const run = atomicAdd(long_runs.num_runs, 1u);
    auto const groups = static_cast<uint32_t>(ceil_div(num_pieces, kGroupPieces));
    long_runs.runs[run] = {start, num_pieces, last.table, last.slot, sorted.items[start], 0};
    auto const task = atomicAdd(long_runs.num_tasks, groups);
    for (uint32_t g = 0; g < groups; ++g) long_runs.tasks[task + g] = {run, g};
  }

  // The piece that starts at position i of the block, if one does.
  __device__ void cut_at(int i, SortKey key) const {
    auto const p = block_start() + i;
    auto const start = start_of_run_at(i);
    auto const index = (p - start) / kPiece;
    if (p - start != index * kPiece) return;
    auto const left = left_of_run_at(i);
    auto const last = left <= kPiece;
    auto const linear = static_cast<int64_t>(key);
    auto const t = table_of(view, linear);
    Piece piece;
    piece.first_item = sorted.items[p];
    piece.slot = static_cast<int32_t>(linear - view.first_slot[t]);
    piece.table = static_cast<int16_t>(t);
    piece.first = static_cast<int16_t>(i);
    piece.count = last ? left : kPiece;
    auto const num_pieces = last ? index + 1 : index + 2;  // at least, which is all that is asked
    piece.partial = num_pieces == 1 ? -1 : partial_row(start, index, num_pieces);
    memory.pieces[atomicAdd(&memory.num_pieces, 1)] = piece;
    atomicMax(&memory.max_dim, view.tables[t].dim);
    if (last && index > 0) append_long_run(start, num_pieces, piece);
  }

  // After this the pieces of the block and the rows of their positions are in shared memory.
  __device__ void run() const {
    find_heads();
    __syncthreads();
    auto const i = static_cast<int>(threadIdx.x);
    auto const p = block_start() + i;
    auto const key = key_at_position(p);
    if (key != sorted.total_slots) {
      memory.rows[i] = gradient_row(sorted.items[p]);
      cut_at(i, key);
    }
    // What follows the block belongs to its last piece, up to the next head.
    auto const after = memory.heads[kBlockPositions / 32] & (kFullWarp >> (31 - lane_id()));
    if (i < kPiece && after == 0 && sorted.keys[p + kBlockPositions] != sorted.total_slots) {
      memory.rows[kBlockPositions + i] = gradient_row(sorted.items[p + kBlockPositions]);
    }
    __syncthreads();
  }
};

}  // namespace dynemb::cuda
