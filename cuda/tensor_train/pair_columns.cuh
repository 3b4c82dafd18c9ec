// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/pair_columns.cuh: the rows of one prefix as one wide matrix: the columns of all
// their suffixes side by side, so that one product makes several rows.
#pragma once

#include "core/pair_rows.h"

namespace dynemb::cuda {

constexpr int kTileColumns = 8;
constexpr int kTileRows = 16;

// One column: of which row, and of which suffix.
struct PairColumn {
  int64_t row;
  int32_t suffix;
  int32_t n;
  bool exists;
};

class PairColumns {
 public:
  __device__ PairColumns(PairShape const& shape, int64_t prefix)
      : shape_(shape), range_(rows_of_prefix(shape, prefix)) {}

  __device__ int64_t count() const {
    return range_.end > range_.begin ? (range_.end - range_.begin) * shape_.n : 0;
  }

  __device__ __forceinline__ PairColumn at(int64_t column) const {
    auto const index = static_cast<uint32_t>(column) / static_cast<uint32_t>(shape_.n);
    PairColumn found{};
    found.n = static_cast<int32_t>(column - int64_t{index} * shape_.n);
    found.row = range_.begin + index;
    if (column >= count()) return found;
    found.suffix = shape_.of_suffix[found.row];
    found.exists = static_cast<uint32_t>(found.suffix) < static_cast<uint64_t>(shape_.num_suffixes);
    return found;
  }

 private:
  PairShape const& shape_;
  RowRange range_;
};

// What a kernel chooses its instance by: steps of 8 that hold so many ranks.
inline int steps_of(int32_t k) {
  auto steps = 1;
  while (steps * 8 < k) steps *= 2;
  return steps;
}

// Calls body(std::integral_constant<int, steps>, std::bool_constant<exact>).
template <class Body>
cudaError_t with_steps(PairShape const& shape, Body const& body) {
  auto const with_exact = [&](auto steps) {
    return shape.exact != 0 ? body(steps, std::true_type{}) : body(steps, std::false_type{});
  };
  switch (steps_of(shape.k)) {
    case 1:
      return with_exact(std::integral_constant<int, 1>{});
    case 2:
      return with_exact(std::integral_constant<int, 2>{});
    case 4:
      return with_exact(std::integral_constant<int, 4>{});
    default:
      return with_exact(std::integral_constant<int, 8>{});
  }
}

}  // namespace dynemb::cuda
