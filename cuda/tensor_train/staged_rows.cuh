// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/staged_rows.cuh: which rows a block copies into shared memory next. A slot is a
// prefix and up to 32 of its rows, a stage as many slots as fit.
#pragma once

#include "core/pair_rows.h"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

constexpr int kMostSlots = 16;
constexpr int kRowsOfSlot = 32;
constexpr int64_t kRowsAPrefix = 8;  // the time that a prefix takes besides its rows, in rows

struct alignas(8) RowRange32 {
  int32_t begin, end;
};

struct alignas(16) Slot {
  int32_t prefix;
  int32_t first;   // of its rows
  int32_t staged;  // where they begin among those of the stage
  int32_t count;
};

struct StagePlan {
  Slot slots[kMostSlots];
  int32_t count;  // 0: there are no more rows
};

// The prefixes of a share, 32 of them in the lanes of a warp: all its methods are for whole warps.
class StagePlanner {
 public:
  // Of each prefix the rows in `ranges`, or all of them where that is null.
  __device__ __forceinline__ StagePlanner(PairShape const& shape, RowRange32 const* ranges,
                                          int32_t slots, int32_t rows, int64_t first, int64_t last)
      : shape_(shape), ranges_(ranges), slots_(slots), rows_(rows), next_(first), last_(last) {
    load();
  }

  __device__ __forceinline__ void plan(StagePlan& stage) {
    int32_t count = 0;
    while (count == 0 && next_ < last_) count = plan_of_lanes(stage);
    if (lane_id() == 0) stage.count = count;
  }

 private:
  // Numbers are used one plan later: until then their load need not end.
  __device__ __forceinline__ void load() {
    auto const prefix = next_ + lane_id();
    loaded_ = RowRange32{0, 0};
    if (prefix >= last_) return;
    loaded_ = ranges_ != nullptr ? ranges_[prefix]
                                 : RowRange32{shape_.starts[prefix], shape_.starts[prefix + 1]};
  }

  __device__ __forceinline__ int32_t plan_of_lanes(StagePlan& stage) {
    auto const range = clamped_rows(shape_, loaded_.begin, loaded_.end);
    auto begin = static_cast<int32_t>(range.begin);
    auto const end = static_cast<int32_t>(range.end);
    if (lane_id() == 0) begin = max(begin, resumed_);
    // Numbers in `starts` may be any: the difference of a falling range may have no int32.
    auto const wanted = begin < end ? min(end - begin, kRowsOfSlot * kMostSlots) : 0;
    auto const slots = slots_of(wanted);
    auto const both = static_cast<uint32_t>(slots) << 16 | static_cast<uint32_t>(wanted);
    auto const up_to_lane = sum_up_to_lane(both);
    auto const slot = static_cast<int32_t>(up_to_lane >> 16) - slots;
    auto const staged = static_cast<int32_t>(up_to_lane & 0xffff) - wanted;
    auto const room = min((slots_ - slot) * kRowsOfSlot, rows_ - staged);
    auto const taken = max(0, min(wanted, room));
    auto const prefix = static_cast<int32_t>(next_) + lane_id();
    for (int32_t i = 0; i < taken; i += kRowsOfSlot) {
      stage.slots[slot + i / kRowsOfSlot] = {prefix, begin + i, staged + i,
                                             min(kRowsOfSlot, taken - i)};
    }
    go_on_from(begin + taken, end);
    return __reduce_max_sync(kFullWarp, taken > 0 ? slot + slots_of(taken) : 0);
  }

  __device__ __forceinline__ void go_on_from(int32_t begin, int32_t end) {
    auto const left = __ballot_sync(kFullWarp, begin < end);
    auto const done = left == 0 ? 32 : __ffs(static_cast<int>(left)) - 1;
    resumed_ = __shfl_sync(kFullWarp, begin, done % 32);
    if (left == 0) resumed_ = 0;
    next_ += done;
    load();
  }

  static __device__ __forceinline__ int32_t slots_of(int32_t rows) {
    return (rows + kRowsOfSlot - 1) / kRowsOfSlot;
  }

  PairShape const& shape_;
  RowRange32 const* ranges_;
  int32_t slots_, rows_;  // of a stage
  int64_t next_, last_;   // prefixes
  int32_t resumed_ = 0;   // the first row of prefix `next_` that is left
  RowRange32 loaded_{0, 0};
};

// Returns the first prefix of a share, by all lanes of a warp. Shares take about as long each, and
// follow from the data alone, so sums over them have the same bits in every run.
__device__ __forceinline__ int64_t first_prefix_by_warp(PairShape const& shape, int32_t parts,
                                                        int64_t share, int64_t shares) {
  if (share <= 0) return 0;
  if (share >= shares) return shape.num_prefixes;
  auto const before = [&](int64_t prefix) {
    return shape.starts[prefix] / parts + prefix * kRowsAPrefix;
  };
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
