// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/prefix_walk.cuh: a warp goes through the rows of some prefixes, up to 32 rows
// of one prefix in a step.
#pragma once

#include "core/pair_rows.h"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

constexpr int64_t kRowsAPrefix = 8;  // the time of a prefix without rows, in rows

struct WalkedRows {
  int64_t prefix;
  int32_t first;
  int32_t count;  // 0: there are no more
};

// Prefixes without rows are skipped.
class PrefixWalk {
 public:
  __device__ __forceinline__ PrefixWalk(PairShape const& shape, int64_t first, int64_t last)
      : shape_(shape), next_(first), last_(last) {}

  // Reached by all lanes.
  __device__ __forceinline__ WalkedRows next() {
    if (begin_ >= end_) {
      while (waiting_ == 0) {
        if (next_ >= last_) return {0, 0, 0};
        load_ranges();
      }
      auto const lane = __ffs(static_cast<int>(waiting_)) - 1;
      waiting_ &= waiting_ - 1;
      prefix_ = next_ - 32 + lane;
      begin_ = __shfl_sync(kFullWarp, lane_begin_, lane);
      end_ = __shfl_sync(kFullWarp, lane_end_, lane);
    }
    auto const first = begin_;
    begin_ += 32;
    return {prefix_, first, min(32, end_ - first)};
  }

 private:
  // Of 32 prefixes, one a lane.
  __device__ __forceinline__ void load_ranges() {
    auto const own = next_ + lane_id();
    auto const range = own < last_ ? rows_of_prefix(shape_, own) : RowRange{0, 0};
    lane_begin_ = static_cast<int32_t>(range.begin);
    lane_end_ = static_cast<int32_t>(range.end);
    waiting_ = __ballot_sync(kFullWarp, lane_begin_ < lane_end_);
    next_ += 32;
  }

  PairShape const& shape_;
  int64_t next_, last_;  // prefixes whose ranges are not loaded
  int64_t prefix_ = 0;
  int32_t begin_ = 0, end_ = 0;  // of its rows that are left
  unsigned waiting_ = 0;         // lanes whose prefixes are still to come
  int32_t lane_begin_ = 0, lane_end_ = 0;
};

// As first_prefix_of_share, by all lanes of a warp.
__device__ __forceinline__ int64_t first_prefix_of_share_by_warp(PairShape const& shape,
                                                                 int64_t share, int64_t shares) {
  if (share <= 0) return 0;
  if (share >= shares) return shape.num_prefixes;
  auto const before = [&](int64_t prefix) { return shape.starts[prefix] + prefix * kRowsAPrefix; };
  auto const first = before(shape.num_prefixes) * share / shares;
  int64_t low = 0, high = shape.num_prefixes;
  while (low < high) {
    auto const step = (high - low + 31) / 32;
    auto const at = low + (lane_id() + 1) * step - 1;
    auto const below = at < high && before(at) < first;
    auto const count = __popc(__ballot_sync(kFullWarp, below));
    high = min(high, low + (count + 1) * step - 1);
    low += count * step;
  }
  return low;
}

}  // namespace dynemb::cuda
