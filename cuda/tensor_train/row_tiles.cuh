// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/row_tiles.cuh: tiles of eight columns: those of several rows, or some of one
// row's. A warp has up to 32 rows, one a lane, and a mask of those that are left.
#pragma once

#include "core/pair_rows.h"
#include "cuda/grid/warp.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

// Of which row of a tile a column is, and which column of that row.
struct ColumnOfTile {
  int32_t row, n;
  bool exists;
};

class RowTiles {
 public:
  __device__ __forceinline__ explicit RowTiles(int32_t columns)
      : columns_(columns), rows_(columns < kTileColumns ? kTileColumns / columns : 1) {}

  __device__ __forceinline__ ColumnOfTile column(int32_t of_tile) const {
    auto const row = of_tile / columns_;
    return {row, of_tile - row * columns_, row < rows_};
  }

  // The lane of a column's row; -1: there is none.
  __device__ __forceinline__ int lane_of(unsigned lanes, ColumnOfTile const& column) const {
    lanes = without(lanes, column.row);
    return column.exists ? __ffs(static_cast<int>(lanes)) - 1 : -1;
  }

  __device__ __forceinline__ unsigned next(unsigned lanes) const {
    return without(lanes & (lanes - 1), rows_ - 1);
  }

 private:
  // Without those of the first `count` rows, fewer than there are in a tile.
  __device__ __forceinline__ unsigned without(unsigned lanes, int32_t count) const {
    for (int i = 1; i < rows_; ++i) {
      if (count >= i) lanes &= lanes - 1;
    }
    return lanes;
  }

  int32_t columns_, rows_;
};

}  // namespace dynemb::cuda
