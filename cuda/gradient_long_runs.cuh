// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradient_long_runs.cuh: the sums of the pieces of a long run become one.
//
// The sum of a piece goes to a scratch row, and its tile arrives at a counter. The last of sixteen
// to arrive adds up what they have written, and arrives in turn one level above: a tree, so that
// also a batch of one single id is added by many. Who is last is chance; in which order the rows
// are added is not.
#pragma once

#include <cstdint>

#include "cuda/gradient_pieces.cuh"
#include "cuda/gradient_sink.cuh"

namespace dynemb::cuda {

constexpr int kChildren = 16;  // of a node of the tree

// The scratch row, and the counter, of piece `index` of a run that starts at `start`: all pieces of
// long runs have at least kPiece positions, so the number is the piece's own.
__host__ __device__ __forceinline__ int64_t partial_row(int64_t start, int64_t index) {
  return start / kPiece + index;
}

struct LongRuns {
  uint64_t* arrived;  // [num_rows] zeros
  float* partial;     // [num_rows, stride]
  uint32_t num_rows;
  int32_t stride;  // a multiple of 4
};

// Scratch rows of one run, `step` pieces apart.
struct PartialRows {
  int64_t run_start;
  int64_t first;
  int64_t step;
  int64_t count;

  __device__ __forceinline__ int64_t row(int64_t i) const {
    return partial_row(run_start, first + i * step);
  }
};

// One tile, after it has written the sum of a piece that is not all of its run.
template <class Formats, class SortKey, class Sink>
struct LongRunAdder {
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
      auto* const address = long_runs.arrived + counter;
      now = arrival + atomicAdd(reinterpret_cast<unsigned long long*>(address), arrival);
    }
    now = __shfl_sync(tile.mask(), now, 0, tile.lanes);
    __threadfence();
    return now;
  }

  // Out of line: it is needed seldom, and its registers would be missed in the kernel.
  __device__ __forceinline__ void arrive(Piece const& piece) const {
    auto const start = piece.run_start;
    auto num_pieces = piece.last ? int64_t{piece.index} + 1 : 0;  // 0: not known here
    auto child = int64_t{piece.index};
    int64_t span = 1;  // pieces of a child
    for (int level = 0;; ++level) {
      auto const node = child / kChildren;
      auto const first = node * kChildren;
      auto const children = [&] { return ceil_div(num_pieces, span) - first; };
      // An only child waits for nobody. Else the node has more pieces than there are levels below
      // it: one for the counter of each level.
      if (num_pieces == 0 || children() != 1) {
        auto const now = arrive_at(partial_row(start, first * span + level), num_pieces);
        num_pieces = static_cast<int64_t>(now >> 32);
        auto const expected = num_pieces == 0 ? int64_t{kChildren} : children();
        if (static_cast<int64_t>(now & 0xffffffffu) != expected) return;
      }
      auto const count = num_pieces == 0 ? int64_t{kChildren} : children();
      auto const rows = PartialRows{start, first * span, span, count};
      if (num_pieces != 0 && node == 0) return finish(piece, rows);
      if (count > 1) add(piece, rows);
      child = node;
      span *= kChildren;
    }
  }

  __device__ __forceinline__ float* pointer(int64_t row, int32_t column) const {
    return long_runs.partial + row * long_runs.stride + column;
  }

  // Past the first-level cache: others have written these rows during this kernel.
  __device__ __forceinline__ float4 sum_of(PartialRows const& rows, int32_t column) const {
    constexpr int kInFlight = 4;
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
  __device__ void add(Piece const& piece, PartialRows const& rows) const {
    auto const dim = view.tables[piece.table].dim;
    for (auto c = tile.first_column(); c < dim; c += tile.step()) {
      auto const sum = sum_of(rows, c);
      *reinterpret_cast<float4*>(pointer(rows.row(0), c)) = sum;
    }
  }

  __device__ void finish(Piece const& piece, PartialRows const& rows) const {
    auto const& table = view.tables[piece.table];
    auto const format = format_of<Formats>(table);
    auto* const values = row_pointer(format, table.values, piece.slot, table.dim);
    auto const first_item = sorted.items[piece.run_start];
    auto const row =
        SummedRow{table, values, table.dim, piece.table, piece.slot, first_item, piece.is_new};
    auto rate = 0.0f;
    if (sink.needs_squares(row)) {
      auto const loaded = sink.load(format, row, 0);
      auto squares = 0.0f;
      for (auto c = tile.first_column(); c < table.dim; c += tile.step()) {
        squares += square_of(sum_of(rows, c));
      }
      rate = sink.rate(row, sum_of_tile(tile, squares), loaded, tile.rank == 0);
    }
    for (auto c = tile.first_column(); c < table.dim; c += tile.step()) {
      auto const loaded = sink.load(format, row, c);
      sink.store(format, row, c, loaded, sum_of(rows, c), rate);
    }
  }
};

// ---- host ---------------------------------------------------------------------------------------

template <class Args>
LongRuns take_long_runs(Args const& args, Scratch& scratch) {
  auto const items = total_ids(args);
  int32_t stride = 4;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    stride = std::max(stride, (args.tables[t].dim + 3) / 4 * 4);
  }
  auto const rows = items < kLongRun ? 0 : ceil_div(items, kPiece);
  return {scratch.take<uint64_t>(rows), scratch.take<float>(rows * stride),
          static_cast<uint32_t>(rows), stride};
}

}  // namespace dynemb::cuda
