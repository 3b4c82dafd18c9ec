// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradient_pieces.cuh: runs of equal slots, cut into pieces that can be summed by themselves.
//
// A run is all sorted positions of one row. A piece is up to 32 of them, counted from the run's own
// start, so that a sum does not depend on where the run lies. A block takes the pieces that start
// among its own sorted positions.
//
// A row may have left since the lookup: only a slot that still holds the id gets the gradient. All
// positions of a run have the same id, so every piece asks for itself and all come to one answer.
#pragma once

#include <cstdint>

#include "core/feature_ref.h"
#include "core/row.h"
#include "cuda/gradient_order.cuh"
#include "cuda/row_format.cuh"
#include "cuda/tile_group.cuh"

namespace dynemb::cuda {

constexpr int kPiece = 32;  // sorted positions

// What is known of a position of the block: where its gradient lies and its factor.
struct GradientRow {
  char const* row;
  float factor;
  uint16_t type;
  uint16_t vector;
};

struct Piece {
  int64_t run_start;    // sorted position
  uint32_t index;       // of the piece in its run
  uint32_t first_item;  // the item at the start of the run, if the piece is all of it
  int32_t slot;
  int16_t table;
  int16_t first;  // position in the block
  int16_t count;
  bool last;    // of its run
  bool is_new;  // see SummedRow

  __device__ __forceinline__ bool is_whole_run() const { return last && index == 0; }
};

template <int kPositions>
struct PieceMemory {
  // A piece may end in the next block.
  GradientRow rows[kPositions + kPiece];
  Piece pieces[kPositions];
  unsigned heads[kPositions / 32 + 1];  // a bit for each position at which a run begins
  int64_t first_run_start;              // of the run at the block's first position
  int32_t num_pieces;
  int32_t max_dim;
};

template <int kPositions, class SortKey, class Sink>
struct PieceCutter {
  CallView const& view;
  SortedGradients<SortKey> const& sorted;
  Sink const& sink;
  bool counts_lost;
  PieceMemory<kPositions>& memory;

  static constexpr SortKey kNoRow = SortedGradients<SortKey>::kNoRow;

  __device__ __forceinline__ int64_t block_start() const {
    return int64_t{blockIdx.x} * kPositions;
  }

  // The end of the array reads as one more key that no row has.
  __device__ __forceinline__ SortKey key_at_position(int64_t p) const {
    return p < sorted.num_items ? sorted.keys[p] : kNoRow;
  }

  __device__ __forceinline__ bool is_head(int64_t p) const {
    return p == 0 || p >= sorted.num_items || sorted.keys[p] != sorted.keys[p - 1];
  }

  // The start of the run that covers `p`, by all lanes of a warp: first the 32 positions before,
  // then a search that cuts what is left into 32 parts at a time. Keys before `p` are not in order
  // of their value, but those equal to its key are neighbours: each search looks for their first.
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

  __device__ __forceinline__ GradientRow gradient_row(Place const& place) const {
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
    if (warp >= kPositions / 32) return;
    auto const p = block_start() + thread;
    auto const word = __ballot_sync(kFullWarp, is_head(p));
    if (lane_id() == 0) memory.heads[warp] = word;
    if (warp != 0) return;
    auto const after = __ballot_sync(kFullWarp, is_head(block_start() + kPositions + thread));
    auto const start = (word & 1) != 0 ? block_start() : run_start(block_start());
    if (thread != 0) return;
    memory.heads[kPositions / 32] = after;
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

  // What a piece asks its slot for.
  struct Asked {
    Key key;
    float mark;
  };

  __device__ __forceinline__ Asked ask(SortKey key) const {
    auto const t = sorted.table_of(key);
    auto const& table = view.tables[t];
    auto const slot = sorted.slot_of(key);
    return {*key_at(table, slot), sink.mark(t, table, slot)};
  }

  // The piece that starts at position i of the block.
  __device__ void append_piece(int i, int64_t start, SortKey key, Asked const& asked, uint32_t item,
                               Place const& place) const {
    auto const left = left_of_run_at(i);
    auto const t = sorted.table_of(key);
    auto const& table = view.tables[t];
    Piece piece;
    piece.run_start = start;
    piece.index = static_cast<uint32_t>((block_start() + i - start) / kPiece);
    piece.first_item = item;
    piece.slot = sorted.slot_of(key);
    piece.table = static_cast<int16_t>(t);
    piece.first = static_cast<int16_t>(i);
    piece.last = left <= kPiece;
    piece.count = static_cast<int16_t>(piece.last ? left : kPiece);
    piece.is_new = asked.mark == kUnwritten;
    auto const& feature = view.features[place.feature];
    if (asked.key != load_key(feature.ids, feature.id_type, place.position)) {
      if (counts_lost) {
        fetch_add(table.counters + kLostUpdates, static_cast<uint64_t>(piece.count));
      }
      return;
    }
    sink.expect(t, table, piece.slot);
    memory.pieces[atomicAdd(&memory.num_pieces, 1)] = piece;
    atomicMax(&memory.max_dim, table.dim);
  }

  __device__ __forceinline__ void look_at(int i, SortKey key) const {
    auto const p = block_start() + i;
    auto const start = start_of_run_at(i);
    auto const begins_piece = (p - start) % kPiece == 0;
    // Asked for first, needed last: it comes from far away.
    Asked asked{kEmptyKey, 0.0f};
    if (begins_piece) asked = ask(key);
    auto const item = sorted.items[p];
    auto const place = place_of(view, item);
    memory.rows[i] = gradient_row(place);
    if (begins_piece) append_piece(i, start, key, asked, item, place);
  }

  // After this the pieces of the block and the rows of their positions are in shared memory.
  __device__ void run() const {
    find_heads();
    __syncthreads();
    auto const i = static_cast<int>(threadIdx.x);
    auto const p = block_start() + i;
    auto const key = i < kPositions ? key_at_position(p) : kNoRow;
    if (key != kNoRow) look_at(i, key);
    // What follows the block belongs to its last piece, up to the next head.
    auto const after = memory.heads[kPositions / 32] & (kFullWarp >> (31 - lane_id()));
    if (i < kPiece && after == 0 && sorted.keys[p + kPositions] != kNoRow) {
      memory.rows[kPositions + i] = gradient_row(place_of(view, sorted.items[p + kPositions]));
    }
    __syncthreads();
  }
};

}  // namespace dynemb::cuda
