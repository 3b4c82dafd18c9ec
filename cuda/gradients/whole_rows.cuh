// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/whole_rows.cuh: sums of which a tile holds all columns at a time (WholeRows). So
// it knows of a whole row whether all is finite, or the squares, before it changes a column of it.
#pragma once

#include <cstdint>

#include "cuda/gradients/pieces.cuh"
#include "cuda/gradients/sink.cuh"

namespace dynemb::cuda {

// Sums the pieces of a tile. Summer is the PieceSummer (cuda/gradients/sums.cuh) of that tile.
template <class Formats, class Shape, class Sink, class Summer>
struct WholeRowSums {
  Summer const& me;

  // Sums all columns of the pieces in one walk, and hands each sum on.
  __device__ __forceinline__ void walk() const {
    constexpr int kQuads = Shape::quads;
    constexpr int kTogether = kMostQuads / kQuads;  // gradients in flight
    float4 sums[kQuads] = {};
#pragma unroll 1
    for (auto base = me.first; base <= me.last; base += kTogether) {
      RawQuad quads[kTogether][kQuads];
#pragma unroll
      for (int r = 0; r < kTogether; ++r) {
        auto const& from = me.memory.rows[min(base + r, me.last)];
#pragma unroll
        for (int q = 0; q < kQuads; ++q) {
          auto const column = column_of(q);
          auto const wanted = from.has_column(GradientRow::bound_of(column));
          quads[r][q] =
              load_quad_if(wanted, format_of<Formats>(from), from.row, column, from.dim());
        }
      }
#pragma unroll
      for (int r = 0; r < kTogether; ++r) {
        auto const position = base + r;
        if (position > me.last) break;
#pragma unroll
        for (int q = 0; q < kQuads; ++q) sums[q] = me.add(sums[q], position, quads[r][q]);
        if (me.ends(position)) hand_on(position, sums);
      }
    }
  }

  // The first column of this lane in a step.
  __device__ __forceinline__ int32_t column_of(int step) const {
    return me.tile.first_column() + step * me.tile.step();
  }

  // What the sum of a piece is for, if this tile has all of its columns.
  __device__ __forceinline__ void hand_on(int32_t position,
                                          float4 const (&sums)[Shape::quads]) const {
    auto const& piece = me.memory.pieces[position];
    auto const& piece_end = me.memory.piece_ends[position];
    auto const row = me.row_of(piece_end, position);
    if (piece_end.kind == PieceEndKind::kRun) return store(row, sums);
    auto const last_of_run = piece_end.kind == PieceEndKind::kLastPiece;
#pragma unroll
    for (int q = 0; q < Shape::quads; ++q) {
      if (column_of(q) < row.dim) me.store_partial(piece, last_of_run, column_of(q), sums[q]);
    }
  }

  // Rows are loaded some steps at a time, since they take registers, and states more of them.
  __device__ __forceinline__ void store(typename Summer::Row const& row,
                                        float4 const (&sums)[Shape::quads]) const {
    constexpr int kAtOnce = Sink::kStates > 1 ? 2 : 4;
    static_assert(Shape::quads % kAtOnce == 0 && kMostQuads % Shape::quads == 0);
    auto const& sink = me.call.sink;
    auto const format = format_of<Formats>(row.table);
    typename Sink::Loaded loaded[kAtOnce];
    auto const load = [&](int from) {
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) {
        auto const column = column_of(from + q);
        loaded[q] = sink.load(format, row, column, column < row.dim);
      }
    };
    load(0);
    auto rate = 0.0f;
    if (sink.needs_squares(row)) {
      auto squares = 0.0f;
#pragma unroll
      for (auto const& sum : sums) squares += sum_of_tile(me.tile, square_of(sum));
      rate = sink.rate_or_none(row, squares, loaded[0], me.tile.rank == 0);
      if (is_no_rate(rate)) return;
    } else if (Sink::kChecksRows && !all_of_tile(me.tile, is_finite(sum_of_all(sums)))) {
      auto finite = true;
#pragma unroll
      for (auto const& sum : sums) finite = finite && are_finite(sum);
      if (!all_of_tile(me.tile, finite) && sink.skips(row.table, me.tile.rank == 0)) return;
    }
#pragma unroll
    for (int from = 0; from < Shape::quads; from += kAtOnce) {
      if (from > 0) load(from);
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) {
        auto const column = column_of(from + q);
        if (column < row.dim) sink.store(format, row, column, loaded[q], sums[from + q], rate);
      }
    }
  }
};

}  // namespace dynemb::cuda
