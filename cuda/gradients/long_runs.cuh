// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/long_runs.cuh: the sums of the pieces of a long run become one.
//
// The sum of a piece goes to a scratch row, and its tile arrives at a counter. The last of sixteen
// tiles to arrive adds their rows, and arrives in turn one level above. This is a tree, so many
// tiles add the gradients of a batch with one single id. Which tile is last is chance; in which
// order the rows are added is not.
#pragma once

#include <cstdint>

#include "cuda/gradients/pieces.cuh"
#include "cuda/gradients/sink.cuh"

namespace dynemb::cuda {

constexpr int kChildren = 16;  // of a node of the tree

// The scratch row of piece `index` of the run of `num_pieces` > 1 pieces that starts at `start`.
// A piece that is not the last of its run has kPiece positions to itself, which gives it an even
// number of its own; the last piece takes the odd number beside the one before it.
template <int kPiece>
__device__ __forceinline__ int64_t partial_row(int64_t start, int64_t index, int64_t num_pieces) {
  auto const full = start / kPiece + index;
  return index < num_pieces - 1 ? 2 * full : 2 * (full - 1) + 1;
}

struct LongRuns {
  uint64_t* arrived;  // [num_rows + 1] zeros; the last one is for whatever else begins as zero
  float* partial;     // [num_rows, stride]
  uint32_t num_rows;
  int32_t stride;  // a multiple of 4

  uint64_t* spare() const { return arrived + num_rows; }
};

// Holds the scratch rows of one run, `step` pieces apart. num_pieces: of the run, or more if its
// last piece is none of these.
template <int kPiece>
struct PartialRows {
  int64_t run_start;
  int64_t num_pieces;
  int64_t first;
  int64_t step;
  int64_t count;

  __device__ __forceinline__ int64_t row(int64_t i) const {
    return partial_row<kPiece>(run_start, first + i * step, num_pieces);
  }
};

// One tile, after it has written the sum of a piece that is not all of its run.
template <class Formats, class Shape, class SortKey, class Sink>
struct LongRunAdder {
  static constexpr int kPiece = Shape::piece;
  using Rows = PartialRows<kPiece>;
  using EndOfRow = PieceEnd<Sink::kStates>;
  using Row = SummedRow<Sink::kStates>;
  // A small batch waits for its longest run; in a large one registers are worth more.
  static constexpr bool kMinimizesLatency = Shape::minimizes_latency;
  static constexpr int kInFlight = kMinimizesLatency ? 8 : 4;

  CallView const& view;
  SortedGradients<SortKey> const& sorted;
  LongRuns const& long_runs;
  Sink const& sink;
  RowTile const& tile;

  // A counter holds arrivals below and, above, the number of the run's pieces, said by the arrival
  // that knows it. Returns the counter with this arrival. What those before wrote can be read
  // afterwards.
  __device__ __forceinline__ uint64_t arrive_at(int64_t counter, int64_t num_pieces) const {
    __threadfence();
    __syncwarp(tile.mask());
    unsigned long long now = 0;
    if (tile.rank == 0) {
      auto const arrival = static_cast<unsigned long long>(num_pieces) << 32 | 1;
      auto* const address = long_runs.arrived + bounded(counter);
      now = arrival + atomicAdd(reinterpret_cast<unsigned long long*>(address), arrival);
    }
    now = __shfl_sync(tile.mask(), now, 0, tile.lanes);
    __threadfence();
    return now;
  }

  // Out of line: it is needed seldom, and its registers would be missed in the kernel.
  __device__ __forceinline__ void arrive(Piece const& piece, EndOfRow const& piece_end) const {
    auto const start = int64_t{piece.run_start};
    auto const last = piece_end.kind == PieceEndKind::kLastPiece;
    auto num_pieces = last ? int64_t{piece.index} + 1 : 0;  // 0: not known here
    auto child = int64_t{piece.index};
    int64_t span = 1;  // pieces of a child
    for (int level = 0;; ++level) {
      auto const node = child / kChildren;
      auto const first = node * kChildren;
      auto const children = [&] { return ceil_div(num_pieces, span) - first; };
      // A node with one child needs no counter. Else the node's first pieces are not the run's last
      // one, so they have even numbers of their own: one for the counter of each level.
      if (num_pieces == 0 || children() != 1) {
        auto const now = arrive_at(2 * (start / kPiece + first * span + level), num_pieces);
        num_pieces = static_cast<int64_t>(now >> 32);
        auto const expected = num_pieces == 0 ? int64_t{kChildren} : children();
        if (static_cast<int64_t>(now & 0xffffffffu) != expected) return;
      }
      auto const count = num_pieces == 0 ? int64_t{kChildren} : children();
      auto const at_least = num_pieces == 0 ? (first + count) * span + 1 : num_pieces;
      auto const rows = Rows{start, at_least, first * span, span, count};
      if (num_pieces != 0 && node == 0) return finish(piece, piece_end, rows);
      if (count > 1) add(piece_end, rows);
      child = node;
      span *= kChildren;
    }
  }

  // A given order (cuda/gradients/given_order.cuh) may have a run in parts that lie apart: then the
  // counters are wrong, and so would be numbers of rows.
  __device__ __forceinline__ int64_t bounded(int64_t row) const {
    return Sink::kTakesOrders ? min(row, int64_t{long_runs.num_rows} - 1) : row;
  }

  __device__ __forceinline__ float* pointer(int64_t row, int32_t column) const {
    return long_runs.partial + bounded(row) * long_runs.stride + column;
  }

  // Past the first-level cache: others have written these rows during this kernel.
  __device__ __forceinline__ float4 sum_of(Rows const& rows, int32_t column) const {
    float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (int64_t i = 0; i < rows.count; i += kInFlight) {
      float4 values[kInFlight];
#pragma unroll
      for (int r = 0; r < kInFlight; ++r) {
        values[r] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (i + r >= rows.count) continue;
        values[r] = __ldcg(reinterpret_cast<float4 const*>(pointer(rows.row(i + r), column)));
      }
#pragma unroll
      for (int r = 0; r < kInFlight; ++r) add_scaled(sum, 1.0f, values[r]);
    }
    return sum;
  }

  // The sum replaces the first row.
  __device__ void add(EndOfRow const& piece_end, Rows const& rows) const {
    auto const dim = view.tables[piece_end.table].dim;
    for (auto c = tile.first_column(); c < dim; c += tile.step()) {
      auto const sum = sum_of(rows, c);
      *reinterpret_cast<float4*>(pointer(rows.row(0), c)) = sum;
    }
  }

  __device__ void finish(Piece const& piece, EndOfRow const& piece_end, Rows const& rows) const {
    auto const& table = view.tables[piece_end.table];
    auto const format = format_of<Formats>(table);
    auto const row =
        Row{table,           piece_end.values,        piece_end,  table.dim,
            piece_end.table, piece_end.learning_rate, piece.slot, sorted.items[piece.run_start],
            piece_end.is_new};
    if constexpr (Sink::kUpdatesRows) {
      finish_at_once(format, row, rows);
    } else {
      finish_row(format, row, rows);
    }
  }

  template <class Format>
  __device__ __forceinline__ void finish_row(Format format, Row const& row,
                                             Rows const& rows) const {
    auto const& table = row.table;
    if constexpr (kMinimizesLatency) {
      if (table.dim <= tile.step()) return finish_at_once(format, row, rows);
    }
    auto rate = 0.0f;
    if (sink.needs_squares(row)) {
      auto const loaded = sink.load(format, row, 0, true);
      auto squares = 0.0f;
      for (auto c = tile.first_column(); c < table.dim; c += tile.step()) {
        squares += square_of(sum_of(rows, c));
      }
      rate = sink.rate_or_none(row, sum_of_tile(tile, squares), loaded, tile.rank == 0);
      if (is_no_rate(rate)) return;
    } else if (Sink::kChecksRows && sink.looks_ahead()) {
      auto finite = true;
      for (auto c = tile.first_column(); c < table.dim; c += tile.step()) {
        finite &= are_finite(sum_of(rows, c));
      }
      if (!all_of_tile(tile, finite) && sink.skips(row.table, tile.rank == 0)) return;
    }
    for (auto c = tile.first_column(); c < table.dim; c += tile.step()) {
      auto const loaded = sink.load(format, row, c, true);
      sink.store(format, row, c, loaded, sum_of(rows, c), rate);
    }
  }

  // A row with no more columns than the tile's lanes have.
  template <class Format>
  __device__ __forceinline__ void finish_at_once(Format format, Row const& row,
                                                 Rows const& rows) const {
    auto const column = tile.first_column();
    auto const mine = column < row.dim;
    auto const loaded = sink.load(format, row, column, mine);
    auto const sum = mine ? sum_of(rows, column) : float4{0.0f, 0.0f, 0.0f, 0.0f};
    auto rate = 0.0f;
    if (sink.needs_squares(row)) {
      rate = sink.rate_or_none(row, sum_of_tile(tile, square_of(sum)), loaded, tile.rank == 0);
      if (is_no_rate(rate)) return;
    } else if (Sink::kChecksRows && !all_of_tile(tile, are_finite(sum))) {
      if (sink.skips(row.table, tile.rank == 0)) return;
    }
    if constexpr (Sink::kUpdatesRows) {
      sink.update(tile, format, row, column, loaded, sum);
    } else if (mine) {
      sink.store(format, row, column, loaded, sum, rate);
    }
  }
};

// ---- host ---------------------------------------------------------------------------------------

// Two for each piece that is full (partial_row).
inline int64_t num_partial_rows(int64_t items, int piece) {
  return items <= piece ? 0 : 2 * ceil_div(items, piece);
}

template <class Args>
LongRuns take_long_runs(Args const& args, Scratch& scratch) {
  auto const items = total_ids(args);
  int32_t stride = 4;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    stride = std::max(stride, (args.tables[t].dim + 3) / 4 * 4);
  }
  auto const rows = with_block_shape(
      items, stride, [&](auto shape) { return num_partial_rows(items, decltype(shape)::piece); });
  return {scratch.take<uint64_t>(rows + 1), scratch.take<float>(rows * stride),
          static_cast<uint32_t>(rows), stride};
}

}  // namespace dynemb::cuda
