// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/owned_sums.cuh: gradients of consecutive suffixes, in the registers of one
// warp. It adds the rows of these suffixes alone, so no two warps ever add to one sum. Factors say
// how both factors are read and multiplied: OwnedFloats or OwnedHalves.
#pragma once

#include "cuda/tensor_train/owned_floats.cuh"
#include "cuda/tensor_train/owned_halves.cuh"
#include "cuda/tensor_train/stage_copies.cuh"

namespace dynemb::cuda {

constexpr int kSumWarps = 16;
constexpr int kSumThreads = 32 * kSumWarps;

// The sums of a warp: those of consecutive suffixes, whose columns stand side by side, 64 registers
// of a lane at most. Sizes are constants and no load is in a branch: else the loads of a tile wait
// for each other.
template <class Factors>
class OwnedSums {
 public:
  using Number = typename Factors::Number;
  static constexpr int kRankTiles = Factors::kRankTiles, kColumns = Factors::kColumns;
  static constexpr int kTiles = kRankTiles == 4 ? 4 : 8;   // of 8 columns
  static constexpr int kSuffixes = kTiles * 8 / kColumns;  // of a warp

  __device__ __forceinline__ OwnedSums(PairShape const& shape, StageLayout const& layout,
                                       int32_t part)
      : layout_(layout) {
    first_ = (part * kSumWarps + static_cast<int32_t>(threadIdx.x) / 32) * kSuffixes;
    auto const left = shape.num_suffixes - first_;
    count_ = left < kSuffixes ? static_cast<uint32_t>(left > 0 ? left : 0) : uint32_t{kSuffixes};
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int t = 0; t < kRankTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[j][t][i] = 0.0f;
      }
    }
  }

  // Adds the rows of a stage that belong to suffixes of this warp.
  __device__ __forceinline__ void add(char const* stage, StagePlan const& plan) {
    constexpr int kPrefix = kTileRows * (Factors::kRanks + StageLayout::kPad);
    auto const* const prefixes = reinterpret_cast<Number const*>(stage + layout_.prefixes);
    auto const* const all = reinterpret_cast<Number const*>(stage + layout_.d_rows);
    auto const* const zeros = reinterpret_cast<Number const*>(stage + layout_.zeros);
    auto own = own_of(stage, plan.slots[0]);
    for (int32_t i = 0; i < plan.count; ++i) {
      auto const now = own;
      auto const& slot = plan.slots[i];
      if (i + 1 < plan.count) own = own_of(stage, plan.slots[i + 1]);
      auto const tile = now * kColumns / kTileColumns;
      auto const tiles = __reduce_or_sync(kFullWarp, now == kNone ? 0u : 1u << tile);
      if (tiles == 0) continue;
      typename Factors::Prefix const prefix(prefixes + i * kPrefix);
      auto const* const d_rows = all + slot.staged * (kTileRows * kColumns);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        if ((tiles >> j & 1) == 0) continue;
        Factors::add_tile(prefix, tile_of(j, now, d_rows, zeros), sums_[j]);
      }
    }
  }

  // As [num_suffixes, k, n].
  __device__ void write(float* out) const {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      auto const column = j * kTileColumns + sum_column(0);
      auto const own = static_cast<uint32_t>(column / kColumns);
      if (own >= count_) continue;
      auto* const to =
          out + (int64_t{first_} + own) * (Factors::kRanks * kColumns) + column % kColumns;
#pragma unroll
      for (int i = 0; i < 2 * kRankTiles; ++i) {
        auto const rank = Factors::rank_of_lane(i);
        *reinterpret_cast<float2*>(to + rank * kColumns) = {sums_[j][i / 2][i % 2 * 2],
                                                            sums_[j][i / 2][i % 2 * 2 + 1]};
      }
    }
  }

 private:
  static constexpr uint32_t kNone = ~0u;

  // Which of this warp's suffixes row `lane` of a slot has.
  __device__ __forceinline__ uint32_t own_of(char const* stage, Slot const& slot) const {
    auto const* const suffixes = reinterpret_cast<int32_t const*>(stage) + slot.staged;
    auto const suffix = lane_id() < slot.count ? suffixes[lane_id()] : -1;
    auto const own = static_cast<uint32_t>(suffix) - static_cast<uint32_t>(first_);
    return own < count_ ? own : kNone;
  }

  // The rows, in their slot, of the suffixes that tile j has.
  __device__ __forceinline__ StagedTile<Number> tile_of(int j, uint32_t own, Number const* d_rows,
                                                        Number const* zeros) const {
    constexpr int kInTile = kTileColumns / kColumns;  // suffixes
    auto const row_of = [&](int suffix) {
      auto const lanes = __ballot_sync(kFullWarp, own == static_cast<uint32_t>(suffix));
      return __ffs(static_cast<int>(lanes)) - 1;
    };
    return {row_of(j * kInTile), row_of(j * kInTile + kInTile - 1), d_rows, zeros};
  }

  StageLayout const& layout_;
  int32_t first_;   // of the suffixes
  uint32_t count_;  // of them
  float sums_[kTiles][kRankTiles][4];
};

}  // namespace dynemb::cuda
