// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/slot_rows.cuh: in shared memory, which of a warp's suffixes each slot of a
// stage has, and in which row. Most slots have none for a warp, or one: so it looks at those it
// needs.
#pragma once

#include "core/pair_rows.h"
#include "cuda/grid/warp.cuh"
#include "cuda/tensor_train/staged_rows.cuh"

namespace dynemb::cuda {

constexpr int kSumWarps = 16;
constexpr int kSumThreads = 32 * kSumWarps;

// kSuffixes: of a warp. Those of a block are consecutive, and so are those of a warp.
template <int kSuffixes>
class SlotRows {
 public:
  static_assert(kSuffixes <= 16, "bits of a warp, and lanes");

  struct Memory {
    uint32_t suffixes[kMostSlots][kSumWarps];          // bits, of each warp
    uint16_t rows[kMostSlots][kSumWarps * kSuffixes];  // staged; undefined without the bit
  };

  __device__ __forceinline__ SlotRows(PairShape const& shape, Memory& memory, int32_t part)
      : memory_(memory), first_(part * kSumWarps * kSuffixes) {
    auto const left = shape.num_suffixes - first_;
    count_ = static_cast<uint32_t>(left < 0 ? 0 : left < kOfBlock ? left : int64_t{kOfBlock});
  }

  // Of slot `slot` of a stage, by all lanes of the warp that has copied its suffixes: each lane
  // has copied that of its own row.
  __device__ __forceinline__ void note(StagePlan const& plan, int32_t slot,
                                       int32_t const* suffixes) const {
    auto& own = memory_.suffixes[slot];
    if (lane_id() < kSumWarps) own[lane_id()] = 0;
    __syncwarp();
    auto const& rows = plan.slots[slot];
    if (slot >= plan.count || lane_id() >= rows.count) return;
    auto const row = rows.staged + lane_id();
    auto const suffix = static_cast<uint32_t>(suffixes[row]) - static_cast<uint32_t>(first_);
    if (suffix >= count_) return;
    memory_.rows[slot][suffix] = static_cast<uint16_t>(row);
    atomicOr(&own[suffix / kSuffixes], 1u << suffix % kSuffixes);
  }

  // What this warp has of slot `lane`: bits of its suffixes.
  __device__ __forceinline__ uint32_t suffixes_of_lane(int32_t count) const {
    return lane_id() < count ? memory_.suffixes[lane_id()][warp()] : 0;
  }

  // In lane i the staged row of this warp's suffix i, or `none`.
  __device__ __forceinline__ int32_t row_of_lane(int32_t slot, uint32_t suffixes,
                                                 int32_t none) const {
    auto const row = memory_.rows[slot][warp() * kSuffixes + lane_id() % kSuffixes];
    return (suffixes >> lane_id() % kSuffixes & 1) != 0 ? int32_t{row} : none;
  }

  // The first of this warp's suffixes, and how many there are.
  __device__ __forceinline__ int32_t first() const { return first_ + warp() * kSuffixes; }
  __device__ __forceinline__ bool exists(int32_t suffix) const {
    return static_cast<uint32_t>(warp() * kSuffixes + suffix) < count_;
  }

 private:
  static constexpr int kOfBlock = kSumWarps * kSuffixes;

  static __device__ __forceinline__ int32_t warp() {
    return static_cast<int32_t>(threadIdx.x) / 32;
  }

  Memory& memory_;
  int32_t first_;   // of the block
  uint32_t count_;  // of its suffixes
};

}  // namespace dynemb::cuda
