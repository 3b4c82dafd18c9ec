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
constexpr int kTogether = 2;       // pieces that a tile sums at the same time
constexpr int kRowsOfPiece = 2;    // gradients on their way, for each of them

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
    return AnyFormat{static_cast<ValueType>(row.type), row.vector != 0};
  }
}

// One tile at work on kTogether pieces. All lanes of the tile take the same branches, except where
// a lane has no column.
template <class Formats, int kPositions, class SortKey, class Sink>
struct PieceSummer {
  PieceMemory<kPositions> const& memory;
  PiecesCall<SortKey, Sink> const& call;
  RowTile const& tile;
  int32_t first;  // of the pieces,
  int32_t step;   // and from one to the next

  __device__ __forceinline__ int32_t index(int k) const { return first + k * step; }
  __device__ __forceinline__ bool exists(int k) const { return index(k) < memory.num_pieces; }
  // Read again where it is needed: shared memory is near and registers are few.
  __device__ __forceinline__ Piece const& piece(int k) const { return memory.pieces[index(k)]; }
  __device__ __forceinline__ TableRef const& table(int k) const {
    return call.view.tables[piece(k).table];
  }
  __device__ __forceinline__ bool is_whole(int k) const {
    return exists(k) && piece(k).is_whole_run();
  }
  __device__ __forceinline__ SummedRow row(int k) const {
    return {table(k), piece(k).table, piece(k).slot, piece(k).first_item, piece(k).is_new};
  }

  __device__ __forceinline__ void sum(int32_t column, int32_t const (&dim)[kTogether],
                                      float4 (&sums)[kTogether]) const {
    int32_t most = 0;
    int32_t count[kTogether];
    GradientRow const* rows[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      sums[k] = {0.0f, 0.0f, 0.0f, 0.0f};
      count[k] = column < dim[k] ? piece(k).count : 0;
      rows[k] = memory.rows + (exists(k) ? piece(k).first : 0);
      most = max(most, count[k]);
    }
    for (int32_t base = 0; base < most; base += kRowsOfPiece) {
      RawQuad quad[kTogether][kRowsOfPiece];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
#pragma unroll
        for (int r = 0; r < kRowsOfPiece; ++r) {
          quad[k][r] = {{0, 0, 0, 0}};
          if (base + r >= count[k]) continue;
          auto const& from = rows[k][base + r];
          quad[k][r] = load_quad(format_of<Formats>(from), from.row, column, dim[k]);
        }
      }
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
#pragma unroll
        for (int r = 0; r < kRowsOfPiece; ++r) {
          if (base + r >= count[k]) continue;
          auto const& from = rows[k][base + r];
          add_scaled(sums[k], from.factor, to_floats(format_of<Formats>(from), quad[k][r]));
        }
      }
    }
  }

  // The factors of optimizers that need the whole row; `sums` are those of the first columns.
  __device__ __forceinline__ void find_rates(int32_t columns, int32_t const (&dim)[kTogether],
                                             float4 const (&sums)[kTogether],
                                             float (&rates)[kTogether]) const {
    bool needed[kTogether];
    float squares[kTogether], states[kTogether];
    auto any = false;
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      rates[k] = 0.0f;
      states[k] = 0.0f;
      needed[k] = is_whole(k) && call.sink.needs_squares(row(k));
      // By all lanes: a broadcast costs no more than one lane's load, and nobody has to be told.
      if (needed[k]) states[k] = call.sink.row_state(row(k));
      squares[k] = square_of(sums[k]);
      any |= needed[k];
    }
    if (!any) return;
    for (auto base = tile.step(); base < columns; base += tile.step()) {
      float4 more[kTogether];
      sum(base + tile.first_column(), dim, more);
#pragma unroll
      for (int k = 0; k < kTogether; ++k) squares[k] += square_of(more[k]);
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) squares[k] = sum_of_tile(tile, squares[k]);
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (!needed[k]) continue;
      rates[k] = call.sink.rate(row(k), squares[k], &states[k]);
      if (tile.rank == 0) call.sink.store_row_state(row(k), states[k]);
    }
  }

  __device__ __forceinline__ void store_partial(int k, int32_t column, float4 const& sum) const {
    auto const& p = piece(k);
    auto const num_pieces = int64_t{p.index} + (p.last ? 1 : 2);  // at least, which is enough here
    auto const partial = partial_row(p.run_start, p.index, num_pieces);
    auto* const to = call.long_runs.partial + partial * call.long_runs.stride + column;
    *reinterpret_cast<float4*>(to) = sum;
  }

  __device__ __forceinline__ void run() const {
    int32_t dim[kTogether];
    int32_t columns = 0;
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      dim[k] = exists(k) ? table(k).dim : 0;
      columns = max(columns, dim[k]);
    }
    float rates[kTogether];
    for (int32_t base = 0; base < columns; base += tile.step()) {
      auto const column = base + tile.first_column();
      typename Sink::Loaded loaded[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        if (is_whole(k) && column < dim[k]) {
          loaded[k] = call.sink.load(format_of<Formats>(table(k)), row(k), column);
        }
      }
      float4 sums[kTogether];
      sum(column, dim, sums);
      if (base == 0) find_rates(columns, dim, sums, rates);
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        if (column >= dim[k]) continue;
        if (is_whole(k)) {
          call.sink.store(format_of<Formats>(table(k)), row(k), column, loaded[k], sums[k],
                          rates[k]);
        } else {
          store_partial(k, column, sums[k]);
        }
      }
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
  auto const tiles = kWarpsPerBlock * tile.per_warp;
  auto const mine = static_cast<int32_t>(threadIdx.x) / tile.lanes;
  for (auto i = mine; i < memory.num_pieces; i += tiles * kTogether) {
    PieceSummer<Formats, kPositions, SortKey, Sink>{memory, call, tile, i, tiles}.run();
  }
  // In a loop of its own, where the registers of the sums are free again.
  auto const adder =
      LongRunAdder<Formats, SortKey, Sink>{call.view, call.sorted, call.long_runs, call.sink, tile};
#pragma unroll 1
  for (auto i = mine; i < memory.num_pieces; i += tiles) {
    if (!memory.pieces[i].is_whole_run()) adder.arrive(memory.pieces[i]);
  }
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
