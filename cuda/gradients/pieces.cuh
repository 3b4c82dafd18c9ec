// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/pieces.cuh: runs of equal slots, cut into pieces that can be summed by themselves.
//
// A run is all sorted positions of one row. A piece is up to 32 (or 16) of them, counted from the
// run's own start, so that a sum does not depend on where the run lies. A block takes the pieces
// that start among its own sorted positions.
//
// A row may have been evicted since the lookup: only a slot that still holds the id gets the
// gradient. Each piece checks the key itself; all pieces of a run agree, since their positions have
// the same id: those of one lookup, or those that cuda/gradients/checked_slots.cuh has left. The
// check reads one sector that is rarely in a cache. It is skipped for a table that keeps its slots
// (keeps_slots).
#pragma once

#include <cstdint>

#include "core/feature_ref.h"
#include "core/row.h"
#include "cuda/gradients/keys.cuh"
#include "cuda/gradients/sink.cuh"
#include "cuda/grid/initial_rows.cuh"
#include "cuda/grid/row_format.cuh"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

constexpr int kLongestPiece = 32;

// How the positions of a batch are divided among blocks.
//   positions, threads   of a block. A block waits for its slowest warp, so it has few of them.
//   piece                positions of a piece at most. A tile has as many positions to itself: with
//                        fewer, one tile of a warp works on a long piece while others have nothing.
//   minimizes_latency    the longest run decides when the kernel ends: more of its sums are loaded
//                        at a time
//   long_rows            a row may take a warp several steps. Where it cannot, the loops for it
//                        would take registers from the one that counts.
//   quads                steps of columns that a lane holds at a time. With more than one, a row of
//                        several steps is summed once, but fewer warps have room for it.
template <int kPositions, int kBlock, int kPiece, bool kMinimizesLatency, bool kLongRows,
          int kQuads = 1>
struct BlockShape {
  static constexpr int positions = kPositions;
  static constexpr int threads = kBlock;
  static constexpr int warps = kBlock / 32;
  static constexpr int piece = kPiece;
  static constexpr bool minimizes_latency = kMinimizesLatency;
  static constexpr bool long_rows = kLongRows;
  static constexpr int quads = kQuads;
};

using NarrowRows = BlockShape<256, 128, kLongestPiece, false, false>;  // two tiles a warp, or more
using WideRows = BlockShape<64, 64, kLongestPiece, false, false>;
using LongRows = BlockShape<64, 64, kLongestPiece, false, true>;
// A small batch: more of the multiprocessors have work, and more tiles a popular row.
using FewItems = BlockShape<64, 128, kLongestPiece / 2, true, false>;
using FewLongRows = BlockShape<64, 128, kLongestPiece / 2, true, true>;
// Rows of up to so many steps, of an optimizer that looks at all columns before it changes one:
// with LongRows they would be summed twice. Pieces are as long, so both need the same memory.
template <int kQuads>
using WholeRows = BlockShape<64, 64, kLongestPiece, false, true, kQuads>;

constexpr int kMostQuads = 8;

// What is known of a position of the block: where its gradient lies and its factor.
struct alignas(16) GradientRow {
  char const* row;
  float factor;
  uint32_t packed;  // zero: no gradient here

  static constexpr uint32_t kBegins = 1;  // a piece that is to be summed

  __device__ __forceinline__ bool begins_piece() const { return (packed & kBegins) != 0; }
  __device__ __forceinline__ int32_t dim() const { return static_cast<int32_t>(packed >> 4); }

  // dim() > column, in one instruction: `bound` is bound_of(column).
  static __device__ __forceinline__ uint32_t bound_of(int32_t column) {
    return static_cast<uint32_t>(column) << 4 | 15;
  }
  __device__ __forceinline__ bool has_column(uint32_t bound) const { return packed > bound; }
  template <class Format>
  __device__ __forceinline__ Format format() const {
    return make_format<Format>(static_cast<ValueType>(packed >> 2 & 3), (packed & 2) != 0);
  }
};

template <class Formats>
__device__ __forceinline__ auto format_of(GradientRow const& row) {
  return row.format<typename Formats::Row>();
}

__device__ __forceinline__ uint32_t pack(int32_t dim, AnyFormat format) {
  return static_cast<uint32_t>(dim) << 4 | static_cast<uint32_t>(format.type) << 2 |
         static_cast<uint32_t>(format.vector) << 1;
}

enum class PieceEndKind : uint8_t {
  kNone = 0,       // no piece ends at this position
  kRun = 1,        // one that is all of its run
  kPiece = 2,      // one of several of its run, not the last
  kLastPiece = 3,  // the last of several
};

// What is to be done when the gradients up to a position are summed.
template <int kStates>
struct alignas(kStates == 1 ? 8 : 16) PieceEnd : StateRows<kStates> {
  char* values;         // the row that the piece belongs to
  float learning_rate;  // see SummedRow
  int16_t table;
  PieceEndKind kind;
  bool is_new;  // see SummedRow
};

// What is seldom read.
struct Piece {
  uint32_t run_start;   // sorted position
  uint32_t index;       // of the piece in its run
  int32_t slot;         // of its row
  uint32_t first_item;  // the item at the start of the run, if the piece is all of it
  float number;         // of an optimizer that needs the whole row: its squares, then its rate
};

// Bits for the positions of a block and for those after it that its last piece may take.
template <int kPositions>
struct PositionBits {
  unsigned words[kPositions / 32 + 1];

  // Returns the bits from `first` on: 64 - first % 32 of them.
  __device__ __forceinline__ uint64_t from(int first) const {
    auto const* const word = words + first / 32;
    return (uint64_t{word[0]} | uint64_t{word[1]} << 32) >> (first % 32);
  }
};

template <class Shape, int kStates>
struct PieceMemory {
  static constexpr int kPositions = Shape::positions;
  static constexpr int kAll = kPositions + kLongestPiece;  // a piece may end in the next block

  GradientRow rows[kAll];
  PieceEnd<kStates> piece_ends[kAll];
  Piece pieces[kAll];               // each at the position where it ends
  PositionBits<kPositions> heads;   // where a run begins
  PositionBits<kPositions> cuts;    // where a piece begins
  PositionBits<kPositions> begins;  // where one begins that is to be summed
  PositionBits<kPositions> parts;   // where one begins that is not all of its run
  int64_t first_run_start;          // of the run at the block's first position
  int32_t max_dim;
};

template <class Shape, class SortKey, class Sink>
struct PieceCutter {
  CallView const& view;
  SortedGradients<SortKey> const& sorted;
  Sink const& sink;
  bool counts_lost;
  PieceMemory<Shape, Sink::kStates>& memory;

  static constexpr SortKey kNoRow = SortedGradients<SortKey>::kNoRow;
  static constexpr int kPiece = Shape::piece;
  static constexpr int kPositions = Shape::positions;

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
  // then 32 that lie ever further apart, then a search that cuts what is left into 32 parts at a
  // time. Keys before `p` are not in order of their value, but those equal to its key are
  // neighbours: each search looks for their first.
  __device__ int64_t run_start(int64_t p) const {
    auto const key = sorted.keys[p];
    auto const near = p - 1 - lane_id();
    auto const other =
        __ballot_sync(kFullWarp, near < 0 || sorted.keys[near < 0 ? 0 : near] != key);
    if (other != 0) return p - (__ffs(static_cast<int>(other)) - 1);
    // 48 to 17 million positions away, each lane half as far again as the one before.
    auto const distance = 32.0f * exp2f(0.594f * static_cast<float>(lane_id() + 1));
    auto const far = p - static_cast<int64_t>(distance);
    auto const same = __ballot_sync(kFullWarp, far >= 0 && sorted.keys[far < 0 ? 0 : far] == key);
    auto const count = __popc(same);
    int64_t high = __shfl_sync(kFullWarp, far, max(count - 1, 0));
    if (count == 0) high = p - 32;
    int64_t low = __shfl_sync(kFullWarp, far, min(count, 31));
    low = count == 32 ? 0 : max(low, int64_t{0});  // low <= start <= high
    while (low < high) {
      auto const step = (high - low + 31) / 32;
      auto const probe = min(low + lane_id() * step, high);
      auto const same_here = __ballot_sync(kFullWarp, sorted.keys[probe] == key);
      auto const first = same_here == 0 ? 32 : __ffs(static_cast<int>(same_here)) - 1;
      auto const next_high = first == 32 ? high : min(low + first * step, high);
      low = first == 0 ? low : min(low + (first - 1) * step + 1, next_high);
      high = next_high;
    }
    return low;
  }

  __device__ __forceinline__ GradientRow gradient_row(uint32_t item) const {
    return gradient_row(item, place_of(view, item));
  }

  __device__ __forceinline__ GradientRow gradient_row(uint32_t item, Place const& place) const {
    auto const& feature = view.features[place.feature];
    auto const dim = view.tables[feature.table].dim;
    auto const bag = sorted.bag_of_item(feature, item, place.position);
    auto const format = AnyFormat{feature.row_type, moves_vectors(feature.rows, dim)};
    return {element_pointer(format, feature.rows, row_offset(feature.places, bag, dim)),
            gradient_factor(feature, bag, place.position), pack(dim, format)};
  }

  // Heads of the block and of the 32 positions after it, and the run that the block begins in.
  __device__ void find_heads() const {
    auto const thread = static_cast<int>(threadIdx.x);
    auto begins_run = false;  // the block
#pragma unroll
    for (int i = thread; i < kPositions; i += Shape::threads) {
      auto const word = __ballot_sync(kFullWarp, is_head(block_start() + i));
      if (lane_id() == 0) memory.heads.words[i / 32] = word;
      if (i < 32) begins_run = (word & 1) != 0;
    }
    if (thread >= 32) return;
    auto const after = __ballot_sync(kFullWarp, is_head(block_start() + kPositions + thread));
    auto const start = begins_run ? block_start() : run_start(block_start());
    if (thread != 0) return;
    memory.heads.words[kPositions / 32] = after;
    memory.cuts.words[kPositions / 32] = after;
    memory.first_run_start = start;
    memory.max_dim = 1;
  }

  // Returns the last head at or before position `i` of the block.
  __device__ __forceinline__ int64_t start_of_run_at(int i) const {
    auto word = i / 32;
    auto bits = memory.heads.words[word] & (kFullWarp >> (31 - i % 32));
    while (bits == 0 && word > 0) bits = memory.heads.words[--word];
    return bits == 0 ? memory.first_run_start
                     : block_start() + word * 32 + 31 - __clz(static_cast<int>(bits));
  }

  // Positions from i to the end of its run, or 33 if there are more than 32.
  __device__ __forceinline__ int left_of_run_at(int i) const {
    auto const next = static_cast<uint32_t>(memory.heads.from(i) >> 1);
    return next == 0 ? kLongestPiece + 1 : __ffs(static_cast<int>(next));
  }

  // What a piece reads of its slot.
  struct SlotRead {
    Key key;  // undefined where the table's keys are not checked
    float mark;
  };

  __device__ __forceinline__ SlotRead read_slot(SortKey key) const {
    auto const t = sorted.table_of(key);
    auto const& table = view.tables[t];
    auto const slot = sorted.slot_of(key);
    auto const mark = sink.mark(t, table, slot);
    return {view.checks_keys[t] ? *key_at(table, slot) : kEmptyKey, mark};
  }

  // What begins at a position.
  struct Begun {
    bool cuts, sums, parts;
    int32_t dim;  // of what is to be summed
  };

  // The piece that starts at position i of the block.
  __device__ __forceinline__ Begun append_piece(int i, int64_t start, SortKey key,
                                                SlotRead const& read, uint32_t item,
                                                Place const& place) const {
    auto const left = left_of_run_at(i);
    auto const last = left <= kPiece;
    auto const count = last ? left : kPiece;
    auto const t = sorted.table_of(key);
    auto const slot = sorted.slot_of(key);
    auto const& table = view.tables[t];
    auto const& feature = view.features[place.feature];
    if (view.checks_keys[t] && read.key != load_key(feature.ids, feature.id_type, place.position)) {
      if (counts_lost) fetch_add(table.counters + kLostUpdates, static_cast<uint64_t>(count));
      return {true, false, false, 0};
    }
    auto const index = static_cast<uint32_t>((block_start() + i - start) / kPiece);
    auto const whole = last && index == 0;
    auto const end = i + count - 1;
    memory.rows[i].packed |= GradientRow::kBegins;
    memory.piece_ends[end] = {state_rows<Sink::kStates>(table, slot),
                              row_pointer(value_format(table), table.values, slot, table.dim),
                              sink.learning_rate(t),
                              static_cast<int16_t>(t),
                              whole  ? PieceEndKind::kRun
                              : last ? PieceEndKind::kLastPiece
                                     : PieceEndKind::kPiece,
                              read.mark == kUnwritten};
    memory.pieces[end] = {static_cast<uint32_t>(start), index, slot, item, 0.0f};
    return {true, true, !whole, table.dim};
  }

  __device__ __forceinline__ Begun look_at(int i, SortKey key, uint32_t item) const {
    if (key == kNoRow) {
      memory.rows[i] = {nullptr, 0.0f, 0};
      return {true, false, false, 0};  // no piece goes on here
    }
    auto const p = block_start() + i;
    auto const start = start_of_run_at(i);
    auto const begins_piece = (p - start) % kPiece == 0;
    // Loaded first, used last: it is rarely in a cache.
    SlotRead read{kEmptyKey, 0.0f};
    if (begins_piece) read = read_slot(key);
    auto const place = place_of(view, item);
    memory.rows[i] = gradient_row(item, place);
    return begins_piece ? append_piece(i, start, key, read, item, place) : Begun{};
  }

  // By all lanes of the warp that `i` belongs to.
  __device__ __forceinline__ void note(int i, Begun const& begun) const {
    auto const cuts = __ballot_sync(kFullWarp, begun.cuts);
    auto const sums = __ballot_sync(kFullWarp, begun.sums);
    auto const parts = __ballot_sync(kFullWarp, begun.parts);
    auto const dim = __reduce_max_sync(kFullWarp, begun.dim);
    if (lane_id() != 0) return;
    memory.cuts.words[i / 32] = cuts;
    memory.begins.words[i / 32] = sums;
    memory.parts.words[i / 32] = parts;
    atomicMax(&memory.max_dim, dim);
  }

  // After this the pieces of the block and the rows of their positions are in shared memory.
  __device__ void run() const {
    constexpr auto kOfThread = ceil_div(kPositions, Shape::threads);
    auto const i = static_cast<int>(threadIdx.x);
    auto const p = block_start() + i;
    SortKey keys[kOfThread];
    uint32_t items[kOfThread];
#pragma unroll
    for (int u = 0; u < kOfThread; ++u) {
      auto const q = u * Shape::threads;
      keys[u] = i + q < kPositions ? key_at_position(p + q) : kNoRow;
    }
#pragma unroll
    for (int u = 0; u < kOfThread; ++u) {  // in flight while heads are found
      items[u] = keys[u] == kNoRow ? 0 : sorted.items[p + u * Shape::threads];
    }
    for (int j = i; j < memory.kAll; j += Shape::threads) {
      memory.piece_ends[j].table = 0;  // any valid table: it is read before the kind
      memory.piece_ends[j].kind = PieceEndKind::kNone;
    }
    find_heads();
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kOfThread; ++u) {
      auto const j = i + u * Shape::threads;
      if (j < kPositions) note(j, look_at(j, keys[u], items[u]));
    }
    // What follows the block belongs to its last piece, up to the next head.
    if (i < kLongestPiece) {
      auto const after = memory.heads.words[kPositions / 32] & (kFullWarp >> (31 - lane_id()));
      auto const exists = after == 0 && sorted.keys[p + kPositions] != kNoRow;
      memory.rows[kPositions + i] =
          exists ? gradient_row(sorted.items[p + kPositions]) : GradientRow{};
    }
    __syncthreads();
  }
};

// ---- host ---------------------------------------------------------------------------------------

// `columns`: of the widest table.
template <class Function>
auto with_block_shape(int64_t items, int32_t columns, Function const& function) {
  auto const long_rows = columns > kColumnsOfWarp;
  if (items <= kSmallBatch) return long_rows ? function(FewLongRows{}) : function(FewItems{});
  if (long_rows) return function(LongRows{});
  if (columns > kColumnsOfWarp / 2) return function(WideRows{});
  return function(NarrowRows{});
}

// The same of rows that are summed whole.
template <class Function>
auto with_whole_rows(int32_t columns, Function const& function) {
  if (columns > kMostQuads / 2 * kColumnsOfWarp) return function(WholeRows<kMostQuads>{});
  return function(WholeRows<kMostQuads / 2>{});
}

}  // namespace dynemb::cuda
