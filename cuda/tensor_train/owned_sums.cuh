// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/owned_sums.cuh: gradients of consecutive suffixes, in the registers of one
// warp. It adds the rows of these suffixes alone, so no two warps ever add to one sum.
#pragma once

#include <type_traits>

#include "cuda/tensor_train/stage_copies.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

constexpr int kSumWarps = 16;
constexpr int kSumThreads = 32 * kSumWarps;

// What a warp sums: tiles of 16 ranks and of 8 columns, 64 registers of a lane at most.
template <int kRankTiles, int kColumns>
struct OwnedTiles {
  static constexpr int kRanks = 16 * kRankTiles;                            // of a suffix
  static constexpr int kCount = kRankTiles == 4 ? 4 : 8;                    // of 8 columns
  static constexpr int kSuffixes = kCount * 8 / kColumns;                   // of a warp
  static constexpr int kPrefix = kTileRows * (kRanks + StageLayout::kPad);  // numbers of a prefix
  static constexpr int kTogether = kRankTiles == 1 ? 2 : 4;  // consecutive ranks of a lane

  // Number `i` of a lane's ranks, where 2 * t + h is at row lane / 4 + 8 * h of tile t.
  static __device__ __forceinline__ int32_t rank_of_lane(int i) {
    return lane_id() / 4 * kTogether + i % kTogether + i / kTogether * 32;
  }
};

// The ranks of a lane in the rows lane % 4 + 4 * q of a prefix.
template <int kRankTiles, bool kExact>
class StagedPrefix {
 public:
  __device__ __forceinline__ explicit StagedPrefix(float const* prefix) {
    using Tiles = OwnedTiles<kRankTiles, 8>;
    using Vector = std::conditional_t<kRankTiles == 1, float2, float4>;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      auto const m = lane_id() % 4 + 4 * q;
      auto const* const row = prefix + m * (Tiles::kRanks + StageLayout::kPad);
#pragma unroll
      for (int i = 0; i < 2 * kRankTiles; i += Tiles::kTogether) {
        put(q, i, *reinterpret_cast<Vector const*>(row + Tiles::rank_of_lane(i)));
      }
    }
  }

  __device__ __forceinline__ LeftTile<kExact> tile(int t, int step) const {
    LeftTile<kExact> tile;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      auto const bits = numbers_[2 * step + i / 2][2 * t + i % 2];
      if constexpr (kExact) {
        tile.set(i, __uint_as_float(bits));
      } else {
        tile.high[i] = bits;
      }
    }
    return tile;
  }

 private:
  __device__ __forceinline__ void put(int q, int i, float x) {
    numbers_[q][i] = kExact ? __float_as_uint(x) : rounded_to_tf32(x);
  }
  __device__ __forceinline__ void put(int q, int i, float2 const& two) {
    put(q, i, two.x);
    put(q, i + 1, two.y);
  }
  __device__ __forceinline__ void put(int q, int i, float4 const& four) {
    put(q, i, float2{four.x, four.y});
    put(q, i + 2, float2{four.z, four.w});
  }

  uint32_t numbers_[4][2 * kRankTiles];  // rounded, unless exact
};

// The sums of a warp: those of consecutive suffixes, whose columns stand side by side. Sizes are
// constants and no load is in a branch: else the loads of a tile wait for each other.
template <int kRankTiles, int kColumns, bool kExact>
class OwnedSums {
 public:
  __device__ __forceinline__ OwnedSums(PairShape const& shape, StageLayout const& layout,
                                       int32_t part)
      : layout_(layout) {
    first_ = (part * kSumWarps + static_cast<int32_t>(threadIdx.x) / 32) * Tiles::kSuffixes;
    auto const left = shape.num_suffixes - first_;
    count_ = left < Tiles::kSuffixes ? static_cast<uint32_t>(left > 0 ? left : 0)
                                     : uint32_t{Tiles::kSuffixes};
#pragma unroll
    for (int t = 0; t < kRankTiles; ++t) {
#pragma unroll
      for (int j = 0; j < Tiles::kCount; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[t][j][i] = 0.0f;
      }
    }
  }

  // Adds the rows of a stage that belong to suffixes of this warp.
  __device__ __forceinline__ void add(float const* stage, StagePlan const& plan) {
    auto own = own_of(stage, plan.slots[0]);
    for (int32_t i = 0; i < plan.count; ++i) {
      auto const now = own;
      auto const& slot = plan.slots[i];
      if (i + 1 < plan.count) own = own_of(stage, plan.slots[i + 1]);
      auto const tile = now * kColumns / kTileColumns;
      auto const tiles = __reduce_or_sync(kFullWarp, now == kNone ? 0u : 1u << tile);
      if (tiles == 0) continue;
      StagedPrefix<kRankTiles, kExact> const prefix(stage + layout_.prefixes + i * Tiles::kPrefix);
      auto const* const d_rows = stage + layout_.d_rows + slot.staged * kRowSize;
#pragma unroll
      for (int j = 0; j < Tiles::kCount; ++j) {
        if ((tiles >> j & 1) != 0) add_tile(j, prefix, now, d_rows, stage + layout_.zeros);
      }
    }
  }

  // As [num_suffixes, k, n].
  __device__ void write(float* out) const {
#pragma unroll
    for (int j = 0; j < Tiles::kCount; ++j) {
      auto const column = j * kTileColumns + sum_column(0);
      auto const own = static_cast<uint32_t>(column / kColumns);
      if (own >= count_) continue;
      auto* const to =
          out + (int64_t{first_} + own) * (Tiles::kRanks * kColumns) + column % kColumns;
#pragma unroll
      for (int i = 0; i < 2 * kRankTiles; ++i) {
        auto const rank = Tiles::rank_of_lane(i);
        *reinterpret_cast<float2*>(to + rank * kColumns) = {sums_[i / 2][j][i % 2 * 2],
                                                            sums_[i / 2][j][i % 2 * 2 + 1]};
      }
    }
  }

 private:
  using Tiles = OwnedTiles<kRankTiles, kColumns>;
  static constexpr uint32_t kNone = ~0u;
  static constexpr int kRowSize = kTileRows * kColumns;

  // Which of this warp's suffixes row `lane` of a slot has.
  __device__ __forceinline__ uint32_t own_of(float const* stage, Slot const& slot) const {
    auto const* const suffixes = reinterpret_cast<int32_t const*>(stage) + slot.staged;
    auto const suffix = lane_id() < slot.count ? suffixes[lane_id()] : -1;
    auto const own = static_cast<uint32_t>(suffix) - static_cast<uint32_t>(first_);
    return own < count_ ? own : kNone;
  }

  __device__ __forceinline__ void add_tile(int j, StagedPrefix<kRankTiles, kExact> const& prefix,
                                           uint32_t own, float const* d_rows, float const* zeros) {
    auto const row = row_of(j, own);
    auto const* const from = row >= 0 ? d_rows + row * kRowSize : zeros;
    auto const swizzle = (row & 1) * StagedGradients::kSwizzle;
    auto const first = lane_id() % 4 * kColumns + lane_id() / 4 % kColumns;
    RightTile<kExact> right[2];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      right[q / 2].set(q % 2, from[(first + 4 * q * kColumns) ^ swizzle]);
    }
#pragma unroll
    for (int t = 0; t < kRankTiles; ++t) {
      if constexpr (kExact) {  // tensor cores truncate sums: over many rows that is a bias
        float part[4] = {};
#pragma unroll
        for (int s = 0; s < 2; ++s) add_product<kExact>(part, prefix.tile(t, s), right[s]);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[t][j][i] += part[i];
      } else {
#pragma unroll
        for (int s = 0; s < 2; ++s) add_product<kExact>(sums_[t][j], prefix.tile(t, s), right[s]);
      }
    }
  }

  // The row, in its slot, of the suffix that column lane / 4 of tile j has; -1: there is none.
  __device__ __forceinline__ int32_t row_of(int j, uint32_t own) const {
    constexpr int kInTile = kTileColumns / kColumns;  // suffixes
    auto const first = static_cast<uint32_t>(j * kInTile);
    auto lanes = __ballot_sync(kFullWarp, own == first);
    if constexpr (kInTile == 2) {
      auto const others = __ballot_sync(kFullWarp, own == first + 1);
      lanes = lane_id() < 16 ? lanes : others;
    }
    return __ffs(static_cast<int>(lanes)) - 1;
  }

  StageLayout const& layout_;
  int32_t first_;   // of the suffixes
  uint32_t count_;  // of them
  float sums_[kRankTiles][Tiles::kCount][4];
};

}  // namespace dynemb::cuda
