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

// Says of which row of the chunk a column is, and which of its suffix.
struct PairColumn {
  int32_t row;
  int32_t n;
};

// Holds up to 32 rows of a prefix. Their suffixes are in the lanes, so no load of a row waits for
// that of its suffix's number. All its methods are for whole warps.
class PairChunk {
 public:
  __device__ __forceinline__ PairChunk(PairShape const& shape, int64_t begin, int64_t end)
      : n_(static_cast<uint32_t>(shape.n)) {
    shift_ = 31 - __clz(shape.n);
    auto const rows = end - begin < 32 ? static_cast<int32_t>(end - begin) : 32;
    count_ = static_cast<uint32_t>(rows) * n_;  // the handler refuses more
    auto const exists = lane_id() < rows && has_suffix(shape, begin + lane_id());
    suffix_ = exists ? shape.of_suffix[begin + lane_id()] : -1;
  }

  __device__ uint32_t count() const { return count_; }

  // Columns behind the last are of its row.
  __device__ __forceinline__ PairColumn at(uint32_t column) const {
    column = min(column, count_ - 1);
    auto const index = n_ == 1u << shift_ ? column >> shift_ : column / n_;
    return {static_cast<int32_t>(index), static_cast<int32_t>(column - index * n_)};
  }

  // -1: there is none.
  __device__ __forceinline__ int32_t suffix_of(PairColumn const& column) const {
    return __shfl_sync(kFullWarp, suffix_, column.row);
  }

 private:
  uint32_t n_;
  int shift_;
  uint32_t count_;
  int32_t suffix_;  // of row `lane`
};

// Read once only: it should not push out what is read again.
__device__ __forceinline__ float load_once(float const* from) {
#ifdef __CUDA_ARCH__
  float x;
  asm("ld.global.nc.L1::no_allocate.f32 %0, [%1];" : "=f"(x) : "l"(from));
  return x;
#else
  return *from;
#endif
}

// Returns the blocks of a kernel with a warp for each prefix.
inline int64_t blocks_of_prefixes(PairShape const& shape, int warps_of_block) {
  constexpr int64_t kMostBlocks = 1 << 20;
  return std::min(kMostBlocks, (shape.num_prefixes + warps_of_block - 1) / warps_of_block);
}

constexpr int kMostSteps = 8;

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
  return with_exact(std::integral_constant<int, kMostSteps>{});
}

}  // namespace dynemb::cuda
