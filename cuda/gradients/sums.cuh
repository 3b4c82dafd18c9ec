// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/sums.cuh: the kernel that sums the pieces of a block and hands each sum on: to its
// row (cuda/gradients/sink.cuh) or, if there are more pieces of the row, to the others.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/finite.h"
#include "cuda/gradients/long_runs.cuh"
#include "cuda/gradients/pieces.cuh"
#include "cuda/gradients/sink.cuh"
#include "cuda/gradients/whole_rows.cuh"

namespace dynemb::cuda {

template <class SortKey, class Sink>
struct PiecesCall {
  CallView view;
  SortedGradients<SortKey> sorted;
  LongRuns long_runs;
  bool counts_lost;
  Sink sink;
  bool whole_rows = false;  // the launch is of WholeRows
};

// A tile sums the pieces that begin among its share of the block's positions. It walks over these
// positions, a few gradients at a time, whatever rows they belong to. So as many loads are in
// flight in a run of thirty as in thirty rows of one position each. All lanes of a tile take the
// same branches, and there are few: a branch makes all loads behind it wait.
template <class Formats, class Shape, class SortKey, class Sink>
struct PieceSummer {
  static constexpr int kAhead = Sink::kAhead;  // gradients in flight, and the rows they complete
  static constexpr int kPiece = Shape::piece;
  static constexpr int kPositions = Shape::positions;
  using EndOfRow = PieceEnd<Sink::kStates>;
  using Row = SummedRow<Sink::kStates>;

  PieceMemory<Shape, Sink::kStates>& memory;
  PiecesCall<SortKey, Sink> const& call;
  RowTile const& tile;
  int32_t first = 1;  // position where the first of its pieces begins,
  int32_t last = 0;   // and where the last one ends: before the first, if there are none

  __device__ PieceSummer(PieceMemory<Shape, Sink::kStates>& memory,
                         PiecesCall<SortKey, Sink> const& call, RowTile const& tile)
      : memory(memory), call(call), tile(tile) {
    auto const begins = begins_of(memory.begins);
    if (begins == 0) return;
    first = share() + __ffs(static_cast<int>(begins)) - 1;
    last = end_of(share() + 31 - __clz(static_cast<int>(begins)));
  }

  __device__ PieceSummer(PieceMemory<Shape, Sink::kStates>& memory,
                         PiecesCall<SortKey, Sink> const& call, RowTile const& tile, int32_t last)
      : memory(memory), call(call), tile(tile), last(last) {}

  // Of a warp that is one tile: kPositions / Shape::warps.
  __device__ __forceinline__ int32_t positions_of_share() const {
    return max(kPositions / Shape::warps * tile.lanes / 32, 1);
  }

  __device__ __forceinline__ int32_t share() const {
    auto const warp = static_cast<int32_t>(threadIdx.x) / 32;
    return (warp * tile.per_warp + tile.index) * positions_of_share();
  }

  // Returns the bits of the share's positions.
  __device__ __forceinline__ unsigned begins_of(PositionBits<kPositions> const& bits) const {
    if (share() >= kPositions) return 0;
    return static_cast<unsigned>(bits.from(share())) & (kFullWarp >> (32 - positions_of_share()));
  }

  // Where the piece that begins at a position ends.
  __device__ __forceinline__ int32_t end_of(int32_t begin) const {
    auto const next = __ffsll(static_cast<long long>(memory.cuts.from(begin) >> 1));
    return begin + (next == 0 ? kPiece : min(next, kPiece)) - 1;
  }

  // Shared memory is near and registers are few: piece_end is read again where it is needed.
  __device__ __forceinline__ Row row_of(EndOfRow const& piece_end, int32_t position) const {
    auto const& table = call.view.tables[piece_end.table];
    auto const dim = memory.rows[position].dim();
    auto const& piece = memory.pieces[position];
    return {table,      piece_end.values, piece_end,
            dim,        piece_end.table,  piece_end.learning_rate,
            piece.slot, piece.first_item, piece_end.is_new};
  }

  __device__ __forceinline__ void store_partial(Piece const& p, bool last, int32_t column,
                                                float4 const& sum) const {
    auto const num_pieces = int64_t{p.index} + (last ? 1 : 2);  // at least, which is enough here
    auto const partial = partial_row<kPiece>(p.run_start, p.index, num_pieces);
    auto* const to = call.long_runs.partial + partial * call.long_runs.stride + column;
    *reinterpret_cast<float4*>(to) = sum;
  }

  // What becomes of a sum, if not all columns are in one step: first the squares of the whole row;
  // then the update.
  struct AddSquares {
    static constexpr bool kLoads = false;
    static constexpr bool kFindsRates = false;
    static constexpr bool kChecksRows = Sink::kChecksRows;
    __device__ __forceinline__ void operator()(PieceSummer const& me, typename Sink::Loaded const&,
                                               int32_t position, int32_t /*column*/,
                                               float4 const& sum, float /*rate*/) const {
      if (!me.call.sink.any_needs_squares()) return;
      auto const squares = sum_of_tile(me.tile, square_of(sum));
      if (me.tile.rank == 0) me.memory.pieces[position].number += squares;
    }
  };

  template <bool kOneStep>
  struct Apply {
    static constexpr bool kLoads = true;
    static constexpr bool kFindsRates = kOneStep && Sink::kRowwise;  // before the sums go on
    static constexpr bool kChecksRows = kOneStep && Sink::kChecksRows;
    __device__ __forceinline__ void operator()(PieceSummer const& me,
                                               typename Sink::Loaded const& loaded,
                                               int32_t position, int32_t column, float4 const& sum,
                                               float rate) const {
      auto& piece = me.memory.pieces[position];
      auto const& piece_end = me.memory.piece_ends[position];
      auto const row = me.row_of(piece_end, position);
      if (piece_end.kind != PieceEndKind::kRun) {
        auto const last = piece_end.kind == PieceEndKind::kLastPiece;
        if (column < row.dim) me.store_partial(piece, last, column, sum);
        return;
      }
      auto const& sink = me.call.sink;
      auto const format = format_of<Formats>(row.table);
      if constexpr (Sink::kUpdatesRows) {
        sink.update(me.tile, format, row, column, loaded, sum);
      } else {
        if (!kFindsRates && sink.needs_squares(row)) {
          rate = me.template rate<kOneStep>(piece, row, loaded, column, sum);
          if (is_no_rate(rate)) return;
        }
        if (column < row.dim) sink.store(format, row, column, loaded, sum, rate);
      }
    }
  };

  // Holds the sums of the rows in flight.
  struct Sums {
    float4 of[kAhead];
  };

  // Drops the rows whose sums are not finite, where their tables skip such rows (core/finite.h):
  // their positions no longer end a row. One vote is for all rows in flight, so it is seldom
  // called. It is a function of its own, since its registers would be missing in the walk.
  static __device__ __noinline__ void drop_rows(PieceMemory<Shape, Sink::kStates>& memory,
                                                PiecesCall<SortKey, Sink> const& call, RowTile tile,
                                                int32_t first, int32_t last, Sums sums) {
    auto const me = PieceSummer(memory, call, tile, last);
#pragma unroll
    for (int r = 0; r < kAhead; ++r) {
      auto const position = first + r;
      if (position > last || memory.piece_ends[position].kind != PieceEndKind::kRun) continue;
      if (all_of_tile(tile, are_finite(sums.of[r]))) continue;
      auto const row = me.row_of(memory.piece_ends[position], position);
      if (call.sink.needs_squares(row)) continue;  // its rate says whether it is skipped
      if (!call.sink.skips(row.table, tile.rank == 0)) continue;
      if (tile.rank == 0) memory.piece_ends[position].kind = PieceEndKind::kNone;
    }
    __syncwarp(tile.mask());
  }

  template <bool kOneStep>
  __device__ __forceinline__ float rate(Piece& piece, Row const& row,
                                        typename Sink::Loaded const& loaded, int32_t column,
                                        float4 const& sum) const {
    if constexpr (kOneStep) {
      auto const squares = sum_of_tile(tile, square_of(sum));
      return call.sink.rate_or_none(row, squares, loaded, tile.rank == 0);
    } else {
      auto const number = piece.number;
      __syncwarp(tile.mask());                           // every lane has its number, and the state
      if (column != tile.first_column()) return number;  // the rate, from the first step
      auto const found = call.sink.rate_or_none(row, number, loaded, tile.rank == 0);
      if (tile.rank == 0) piece.number = found;
      __syncwarp(tile.mask());
      return found;
    }
  }

  // The rates of all rows in flight at a time, where all columns are in one step: squares, root
  // and quotient are a long chain. The lanes of a tile exchange squares until each has those of one
  // row only, sum them up, and find that row's rate. The bits are those of one row at a time. All
  // tiles of a warp go through this together: a shuffle among some of the lanes takes ten
  // instructions more.
  struct RowRates {
    int32_t position;  // of this lane's row, if there is one
    bool wanted;
    float state;

    static __device__ __forceinline__ int32_t lanes_of_each(PieceSummer const& me) {
      return me.tile.lanes / kAhead;
    }

    // Whether the row is skipped for its squares; then its position ends no row any more.
    static __device__ __noinline__ bool drops_row(PieceMemory<Shape, Sink::kStates>& memory,
                                                  PiecesCall<SortKey, Sink> const& call,
                                                  int32_t position, float squares) {
      auto& piece_end = memory.piece_ends[position];
      if (is_finite(squares) || !call.sink.skips(call.view.tables[piece_end.table], true)) {
        return false;
      }
      piece_end.kind = PieceEndKind::kNone;
      return true;
    }

    // Of the row that this lane has after the exchange: rank / lanes_of_each, in fewer
    // instructions.
    static __device__ __forceinline__ int32_t index_of_lane(PieceSummer const& me) {
      int32_t index = 0;
#pragma unroll
      for (int count = kAhead / 2; count > 0; count /= 2) {
        index += (me.tile.rank & (lanes_of_each(me) * count)) != 0 ? count : 0;
      }
      return index;
    }

    __device__ __forceinline__ RowRates(PieceSummer const& me, int32_t base) {
      auto const own = base + index_of_lane(me);
      position = min(own, me.last);
      auto const& piece_end = me.memory.piece_ends[position];
      wanted = own <= me.last && piece_end.kind == PieceEndKind::kRun;
      state = wanted ? *piece_end.at(0) : 0.0f;
    }

    __device__ __forceinline__ void find(PieceSummer const& me, float4 const (&sums)[kAhead],
                                         float (&rates)[kAhead]) const {
      auto const& tile = me.tile;
      auto const lanes = lanes_of_each(me);
      float squares[kAhead];
#pragma unroll
      for (int r = 0; r < kAhead; ++r) squares[r] = square_of(sums[r]);
#pragma unroll
      for (int count = kAhead / 2; count > 0; count /= 2) {
        auto const distance = lanes * count;
        auto const upper = (tile.rank & distance) != 0;
#pragma unroll
        for (int r = 0; r < count; ++r) {
          auto const kept = upper ? squares[r + count] : squares[r];
          auto const given = upper ? squares[r] : squares[r + count];
          squares[r] = kept + __shfl_xor_sync(kFullWarp, given, distance);
        }
      }
      auto sum = squares[0];
#pragma unroll
      for (int distance = 16 / kAhead; distance > 0; distance /= 2) {
        if (distance < lanes) sum += __shfl_xor_sync(kFullWarp, sum, distance);
      }
      auto stores = wanted && (tile.rank & (lanes - 1)) == 0;
      if (__any_sync(kFullWarp, stores && !is_finite(sum))) {
        stores = stores && !drops_row(me.memory, me.call, position, sum);
        __syncwarp();
      }
      auto const row = me.row_of(me.memory.piece_ends[position], position);
      typename Sink::Loaded loaded;
      loaded.row_state = state;
      auto const rate = me.call.sink.rate(row, sum, loaded, stores);
#pragma unroll
      for (int r = 0; r < kAhead; ++r) {
        rates[r] = __shfl_sync(kFullWarp, rate, r * lanes, tile.lanes);
      }
    }
  };

  // Where a tile is when the last tile of its warp has come to its end.
  __device__ __forceinline__ int32_t stop_of_warp() const {
    return first + __reduce_max_sync(kFullWarp, last - first);
  }

  // Sums one step of columns of all pieces, and hands each sum on.
  template <class Then>
  __device__ __forceinline__ void walk(int32_t column, Then const& then) const {
    auto const bound = GradientRow::bound_of(column);
    float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
    constexpr auto kTogether = Then::kFindsRates || Then::kChecksRows;
    auto const stop = kTogether ? stop_of_warp() : last;
#pragma unroll 1
    for (auto base = first; base <= stop; base += kAhead) {
      RawQuad quad[kAhead];
      typename Sink::Loaded loaded[kAhead];
#pragma unroll
      for (int r = 0; r < kAhead; ++r) {
        // Past the last one, once more: the sum is not used.
        auto const& from = memory.rows[min(base + r, last)];
        auto const wanted = from.has_column(bound) && (!kTogether || base <= last);
        quad[r] = load_quad_if(wanted, format_of<Formats>(from), from.row, column, from.dim());
      }
      if constexpr (Then::kLoads) {
#pragma unroll
        for (int r = 0; r < kAhead; ++r) {
          auto const position = min(base + r, last);
          auto const& piece_end = memory.piece_ends[position];
          auto const row = row_of(piece_end, position);
          auto const wanted = piece_end.kind == PieceEndKind::kRun && base + r <= last &&
                              memory.rows[position].has_column(bound);
          loaded[r] = call.sink.load(format_of<Formats>(row.table), row, column, wanted);
        }
      }
      if constexpr (Then::kFindsRates) {
        auto const finder = RowRates(*this, base);
        float4 sums[kAhead];
        float rates[kAhead] = {};
#pragma unroll
        for (int r = 0; r < kAhead; ++r) sums[r] = sum = add(sum, min(base + r, last), quad[r]);
        if (__any_sync(kFullWarp, finder.wanted)) finder.find(*this, sums, rates);
#pragma unroll
        for (int r = 0; r < kAhead; ++r) {
          if (ends(base + r)) then(*this, loaded[r], base + r, column, sums[r], rates[r]);
        }
      } else {
        Sums sums;
#pragma unroll
        for (int r = 0; r < kAhead; ++r) sums.of[r] = sum = add(sum, min(base + r, last), quad[r]);
        if (Then::kChecksRows && __any_sync(kFullWarp, any_is_large(sums.of)) &&
            __any_sync(kFullWarp, !is_finite(sum_of_all(sums.of)))) {
          drop_rows(memory, call, tile, base, last, sums);
        }
#pragma unroll
        for (int r = 0; r < kAhead; ++r) {
          if (ends(base + r)) then(*this, loaded[r], base + r, column, sums.of[r], 0.0f);
        }
      }
    }
  }

  // Read again rather than kept: registers are for what is on its way.
  __device__ __forceinline__ float4 add(float4 sum, int32_t position, RawQuad const& quad) const {
    auto const& from = memory.rows[position];
    if (from.begins_piece()) sum = {0.0f, 0.0f, 0.0f, 0.0f};
    add_scaled(sum, from.factor, to_floats(format_of<Formats>(from), quad));
    return sum;
  }

  __device__ __forceinline__ bool ends(int32_t position) const {
    return position <= last && memory.piece_ends[position].kind != PieceEndKind::kNone;
  }

  __device__ __forceinline__ void run() const {
    auto const columns = memory.max_dim;
    auto const column = tile.first_column();
    if (!Shape::long_rows || columns <= tile.step()) {
      walk(column, Apply<true>{});
    } else if constexpr (Shape::quads > 1) {
      WholeRowSums<Formats, Shape, Sink, PieceSummer>{*this}.walk();
    } else if constexpr (Shape::long_rows) {
      if (call.sink.looks_ahead()) {
        for (int32_t c = 0; c < columns; c += tile.step()) walk(c + column, AddSquares{});
        __syncwarp(tile.mask());
      }
      for (int32_t c = 0; c < columns; c += tile.step()) walk(c + column, Apply<false>{});
    }
    arrive_at_long_runs();
  }

  // In a loop of its own, where the registers of the sums are free again.
  __device__ __forceinline__ void arrive_at_long_runs() const {
    auto const adder = LongRunAdder<Formats, Shape, SortKey, Sink>{call.view, call.sorted,
                                                                   call.long_runs, call.sink, tile};
#pragma unroll 1
    for (auto rest = begins_of(memory.parts); rest != 0; rest &= rest - 1) {
      auto const end = end_of(share() + __ffs(static_cast<int>(rest)) - 1);
      adder.arrive(memory.pieces[end], memory.piece_ends[end]);
    }
  }
};

// A multiprocessor runs so many warps at the same time. A small batch has no more.
template <class Shape, class Sink>
constexpr int kWarpsOfShape = Shape::quads > 4           ? 16
                              : Shape::quads > 1         ? 20
                              : Shape::minimizes_latency ? std::min(Sink::kWarps, 32)
                                                         : Sink::kWarps;
template <class Shape, class Sink>
constexpr int kBlocksAtOnce = kWarpsOfShape<Shape, Sink> / Shape::warps;

template <class Formats, class Shape, class SortKey, class Sink>
__global__ void __launch_bounds__(Shape::threads, kBlocksAtOnce<Shape, Sink>)
    pieces_kernel(__grid_constant__ PiecesCall<SortKey, Sink> const call) {
  wait_for_earlier();
  __shared__ PieceMemory<Shape, Sink::kStates> memory;
  PieceCutter<Shape, SortKey, Sink>{call.view, call.sorted, call.sink, call.counts_lost, memory}
      .run();
  constexpr int kFewestLanes = Sink::kRowwise ? Sink::kAhead : 1;  // see RowRates
  auto const tile = RowTile(max(lanes_of_row(memory.max_dim), kFewestLanes));
  PieceSummer<Formats, Shape, SortKey, Sink>(memory, call, tile).run();
}

// ---- host ---------------------------------------------------------------------------------------

// Whether the rows of a table have this format, and its wide states can be moved as vectors.
template <class Format>
bool is_stored_as(TableRef const& table) {
  auto fits = is_format<Format>(table.value_type, table.values, table.dim);
  for (int s = 0; s < table.num_states; ++s) {
    fits &= std::is_same_v<Format, Floats> || table.state_width[s] != table.dim ||
            moves_vectors(table.states[s], table.dim);
  }
  return fits;
}

template <class Format, class Args>
bool has_gradients(Args const& args) {
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto const& feature = args.features[f];
    auto const dim = args.tables[feature.table].dim;
    if (!is_format<Format>(feature.row_type, feature.rows, dim)) return false;
  }
  return true;
}

template <class Formats, class Shape, class SortKey, class Sink>
cudaError_t launch_pieces(PiecesCall<SortKey, Sink> const& call, cudaStream_t stream) {
  return launch_early(pieces_kernel<Formats, Shape, SortKey, Sink>,
                      ceil_div(call.sorted.num_items, Shape::positions), stream, call, 0,
                      Shape::threads);
}

template <class Formats, class SortKey, class Sink>
cudaError_t launch_sums(PiecesCall<SortKey, Sink> const& call, cudaStream_t stream) {
  if constexpr (Sink::kSumsWholeRows && !std::is_same_v<Formats, FloatWidths>) {
    if (call.whole_rows) {
      return with_whole_rows(call.long_runs.stride, [&](auto shape) {
        return launch_pieces<Formats, decltype(shape)>(call, stream);
      });
    }
  }
  return with_block_shape(call.sorted.num_items, call.long_runs.stride, [&](auto shape) {
    if constexpr (std::is_same_v<Formats, FloatWidths> && decltype(shape)::long_rows) {
      return cudaErrorInvalidValue;  // no caller takes it for such rows
    } else {
      return launch_pieces<Formats, decltype(shape)>(call, stream);
    }
  });
}

}  // namespace dynemb::cuda
