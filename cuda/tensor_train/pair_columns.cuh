// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/pair_columns.cuh: rows of one prefix as one wide matrix: the columns of all
// their suffixes side by side, so that one product makes several rows.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "core/pair_rows.h"
#include "cuda/launch.h"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

// One column: of which row, and which of its suffix.
struct PairColumn {
  int64_t row;
  int32_t n;
};

class PairColumns {
 public:
  __device__ __forceinline__ PairColumns(PairShape const& shape, RowRange range)
      : begin_(range.begin), n_(static_cast<uint32_t>(shape.n)) {
    shift_ = 31 - __clz(shape.n);
    auto const rows = range.end > range.begin ? range.end - range.begin : 0;
    count_ = static_cast<uint32_t>(rows) * n_;  // the handler refuses more
  }

  __device__ uint32_t count() const { return count_; }

  __device__ __forceinline__ PairColumn at(uint32_t column) const {
    auto const index = n_ == 1u << shift_ ? column >> shift_ : column / n_;
    return {begin_ + index, static_cast<int32_t>(column - index * n_)};
  }

 private:
  int64_t begin_;
  uint32_t n_;
  int shift_;
  uint32_t count_;
};

// The numbers of a row's suffix at its column; null if there is no such suffix.
template <class Float>
__device__ __forceinline__ Float* suffix_of(PairShape const& shape, Float* suffixes,
                                            PairColumn const& column) {
  if (!has_suffix(shape, column.row)) return nullptr;
  auto const suffix = int64_t{shape.of_suffix[column.row]};
  return suffixes + suffix * (shape.k * shape.n) + column.n;
}

// Blocks of a kernel with a warp for each prefix.
inline int64_t blocks_of_prefixes(PairShape const& shape, int warps_of_block) {
  constexpr int64_t kMostBlocks = 1 << 20;
  return std::min(kMostBlocks, (shape.num_prefixes + warps_of_block - 1) / warps_of_block);
}

// Calls body(std::integral_constant<int, steps>, std::bool_constant<exact>). The steps of 8 cover
// an inner dimension of up to 64; the kernels repeat them for a larger one.
template <class Body>
cudaError_t with_steps(int32_t inner, bool exact, Body const& body) {
  auto const with_exact = [&](auto steps) {
    return exact ? body(steps, std::true_type{}) : body(steps, std::false_type{});
  };
  if (inner <= 8) return with_exact(std::integral_constant<int, 1>{});
  if (inner <= 16) return with_exact(std::integral_constant<int, 2>{});
  if (inner <= 32) return with_exact(std::integral_constant<int, 4>{});
  return with_exact(std::integral_constant<int, 8>{});
}

}  // namespace dynemb::cuda
