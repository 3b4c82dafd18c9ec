// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradient_sums.cuh: the kernel that sums the pieces of a block and hands each sum on: to its
// row (cuda/gradient_sink.cuh) or, if there are more pieces of the row, to the others.
#pragma once

#include <cstdint>

#include "cuda/gradient_long_runs.cuh"
#include "cuda/gradient_pieces.cuh"
#include "cuda/gradient_sink.cuh"

namespace dynemb::cuda {

constexpr int kFewPositions = 64;  // of a block, in a small batch

template <class SortKey, class Sink>
struct PiecesCall {
  CallView view;
  SortedGradients<SortKey> sorted;
  LongRuns long_runs;
  bool counts_lost;
  Sink sink;
};

template <class Formats>
__device__ __forceinline__ auto format_of(GradientRow const& row) {
  if constexpr (Formats::kKnown) {
    return typename Formats::Row{};
  } else {
    return row.format();
  }
}

// One tile at work on the pieces that begin among its share of the block's positions. It walks over
// these positions, a few gradients at a time, whosever they are, so that as many loads are on their
// way in a run of thirty as in thirty rows of one position each. All lanes of a tile take the same
// branches, except where a lane has no column.
template <class Formats, int kPositions, class SortKey, class Sink>
struct PieceSummer {
  static constexpr int kAhead = Sink::kAhead;  // gradients on their way, and the rows they complete

  PieceMemory<kPositions>& memory;
  PiecesCall<SortKey, Sink> const& call;
  RowTile const& tile;
  int32_t first;    // position of the share,
  uint64_t begins;  // where pieces begin, counted from there,
  uint64_t ends;    // and end

  __device__ PieceSummer(PieceMemory<kPositions>& memory, PiecesCall<SortKey, Sink> const& call,
                         RowTile const& tile)
      : memory(memory), call(call), tile(tile), first(0), begins(0), ends(0) {
    auto const tiles = kWarpsPerBlock * tile.per_warp;
    auto const share = max(kPositions / tiles, 1);
    first = static_cast<int32_t>(threadIdx.x) / tile.lanes * share;
    if (first >= kPositions) return;
    begins = memory.begins.from(first) & (~uint64_t{0} >> (64 - share));
    if (begins == 0) return;
    // Up to the end of the last piece; a piece of the share before may end before the first begins.
    auto const last = 63 - __clzll(static_cast<long long>(begins));
    ends = memory.ends.from(first);
    auto const end = ends >> last & (~(ends >> last) + 1);  // the lowest bit
    ends &= (end << last << 1) - 1;
  }

  __device__ __forceinline__ Piece& piece_at(int position) const {
    return memory.pieces[first + position];
  }

  // Where the piece that covers a position begins.
  __device__ __forceinline__ int begin_of(int position) const {
    return 63 - __clzll(static_cast<long long>(begins & (~uint64_t{0} >> (63 - position))));
  }

  __device__ __forceinline__ SummedRow row_of(Piece const& piece) const {
    auto const& table = call.view.tables[piece.table];
    return {table,      piece.values,     table.dim,   piece.table,
            piece.slot, piece.first_item, piece.is_new};
  }

  __device__ __forceinline__ void store_partial(Piece const& p, int32_t column,
                                                float4 const& sum) const {
    auto const partial = partial_row(p.run_start, p.index);
    auto* const to = call.long_runs.partial + partial * call.long_runs.stride + column;
    *reinterpret_cast<float4*>(to) = sum;
  }

  // What becomes of the sum of a piece, if not all columns are in one step, of each step.
  struct Squares {
    static constexpr bool kLoads = false;
    template <class Loaded>
    __device__ __forceinline__ void operator()(PieceSummer const& me, Piece& piece, Loaded const&,
                                               int32_t /*column*/, float4 const& sum) const {
      auto const squares = sum_of_tile(me.tile, square_of(sum));
      if (me.tile.rank == 0) piece.number += squares;
    }
  };

  template <bool kOneStep>
  struct Apply {
    static constexpr bool kLoads = true;
    template <class Loaded>
    __device__ __forceinline__ void operator()(PieceSummer const& me, Piece& piece,
                                               Loaded const& loaded, int32_t column,
                                               float4 const& sum) const {
      auto const& sink = me.call.sink;
      if (!piece.is_whole_run()) {
        if (column < me.call.view.tables[piece.table].dim) me.store_partial(piece, column, sum);
        return;
      }
      auto const row = me.row_of(piece);
      auto rate = 0.0f;
      if (sink.needs_squares(row)) rate = me.rate<kOneStep>(piece, row, loaded, column, sum);
      if (column >= row.dim) return;
      sink.store(format_of<Formats>(row.table), row, column, loaded, sum, rate);
    }
  };

  template <bool kOneStep, class Loaded>
  __device__ __forceinline__ float rate(Piece& piece, SummedRow const& row, Loaded const& loaded,
                                        int32_t column, float4 const& sum) const {
    if constexpr (kOneStep) {
      auto const squares = sum_of_tile(tile, square_of(sum));
      return call.sink.rate(row, squares, loaded, tile.rank == 0);
    } else {
      auto const number = piece.number;
      __syncwarp(tile.mask());                           // every lane has its number, and the state
      if (column != tile.first_column()) return number;  // the rate, from the first step
      auto const found = call.sink.rate(row, number, loaded, tile.rank == 0);
      if (tile.rank == 0) piece.number = found;
      __syncwarp(tile.mask());
      return found;
    }
  }

  // Sums one step of columns of all pieces, and hands each sum on.
  template <class Then>
  __device__ __forceinline__ void walk(int32_t column, Then const& then) const {
    auto const end = 63 - __clzll(static_cast<long long>(ends));
    float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (int base = __ffsll(static_cast<long long>(begins)) - 1; base <= end; base += kAhead) {
      RawQuad quad[kAhead];
      float factor[kAhead];
      typename Sink::Loaded loaded[kAhead];
      auto const begins_here = static_cast<unsigned>(begins >> base);
      auto const ends_here = static_cast<unsigned>(ends >> base);
#pragma unroll
      for (int r = 0; r < kAhead; ++r) {
        auto const position = base + r;
        quad[r] = {{0, 0, 0, 0}};
        factor[r] = 0.0f;
        if (position > end) continue;
        auto const from = memory.rows()[first + position];
        factor[r] = from.factor;
        if (from.row != nullptr && column < from.dim()) {
          quad[r] = load_quad(format_of<Formats>(from), from.row, column, from.dim());
        }
      }
      if constexpr (Then::kLoads) {
#pragma unroll
        for (int r = 0; r < kAhead; ++r) {
          if ((ends_here >> r & 1) == 0) continue;
          auto const& piece = piece_at(begin_of(base + r));
          if (!piece.is_whole_run()) continue;
          auto const row = row_of(piece);
          if (column < row.dim) {
            loaded[r] = call.sink.load(format_of<Formats>(row.table), row, column);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kAhead; ++r) {
        if ((begins_here >> r & 1) != 0) sum = {0.0f, 0.0f, 0.0f, 0.0f};
        add_scaled(sum, factor[r], to_floats(gradient_format(first + base + r), quad[r]));
        if ((ends_here >> r & 1) != 0) {
          then(*this, piece_at(begin_of(base + r)), loaded[r], column, sum);
        }
      }
    }
  }

  __device__ __forceinline__ auto gradient_format(int position) const {
    if constexpr (Formats::kKnown) {
      return typename Formats::Row{};
    } else {
      return memory.rows()[position].format();
    }
  }

  __device__ __forceinline__ void run() const {
    if (begins == 0) return;
    auto const columns = memory.max_dim;
    auto const column = tile.first_column();
    if (columns <= tile.step()) {
      walk(column, Apply<true>{});
    } else {
      if (call.sink.any_needs_squares()) {
        for (int32_t c = 0; c < columns; c += tile.step()) walk(c + column, Squares{});
        __syncwarp(tile.mask());
      }
      for (int32_t c = 0; c < columns; c += tile.step()) walk(c + column, Apply<false>{});
    }
    arrive_at_long_runs();
  }

  // In a loop of its own, where the registers of the sums are free again.
  __device__ __forceinline__ void arrive_at_long_runs() const {
    auto const adder = LongRunAdder<Formats, SortKey, Sink>{call.view, call.sorted, call.long_runs,
                                                            call.sink, tile};
#pragma unroll 1
    for (auto rest = begins; rest != 0; rest &= rest - 1) {
      auto const& piece = piece_at(__ffsll(static_cast<long long>(rest)) - 1);
      if (!piece.is_whole_run()) adder.arrive(piece);
    }
  }
};

template <class Formats, int kPositions, class SortKey, class Sink>
__global__ void __launch_bounds__(kThreads, Sink::kBlocks)
    pieces_kernel(__grid_constant__ PiecesCall<SortKey, Sink> const call) {
  __shared__ PieceMemory<kPositions> memory;
  PieceCutter<kPositions, SortKey, Sink>{call.view, call.sorted, call.sink, call.counts_lost,
                                         memory}
      .run();
  auto const tile = RowTile(lanes_of_row(memory.max_dim));
  PieceSummer<Formats, kPositions, SortKey, Sink>(memory, call, tile).run();
}

// ---- host ---------------------------------------------------------------------------------------

template <class Format, class Args>
bool has_gradients(Args const& args) {
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto const& feature = args.features[f];
    auto const dim = args.tables[feature.table].dim;
    if (!is_format<Format>(feature.row_type, feature.rows, dim)) return false;
  }
  return true;
}

template <class Formats, int kPositions, class SortKey, class Sink>
cudaError_t launch_pieces(PiecesCall<SortKey, Sink> const& call, cudaStream_t stream) {
  return launch(pieces_kernel<Formats, kPositions, SortKey, Sink>,
                ceil_div(call.sorted.num_items, kPositions), stream, call);
}

// With few positions a block takes fewer: more of the multiprocessors have work then.
template <class Formats, class SortKey, class Sink>
cudaError_t launch_sums(PiecesCall<SortKey, Sink> const& call, cudaStream_t stream) {
  constexpr int64_t kFew = 1 << 18;
  if constexpr (sizeof(SortKey) == 4) {
    if (call.sorted.num_items <= kFew) return launch_pieces<Formats, kFewPositions>(call, stream);
  }
  return launch_pieces<Formats, 256>(call, stream);
}

}  // namespace dynemb::cuda
