// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/owned_sums.cuh: gradients of consecutive suffixes, in the registers of one
// warp. It adds the rows of these suffixes alone, so no two warps ever add to one sum. Factors say
// how both factors are read and multiplied: OwnedFloats or OwnedHalves.
#pragma once

#include "cuda/tensor_train/owned_floats.cuh"
#include "cuda/tensor_train/owned_halves.cuh"
#include "cuda/tensor_train/slot_rows.cuh"
#include "cuda/tensor_train/stage_copies.cuh"

namespace dynemb::cuda {

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

  using Rows = SlotRows<kSuffixes>;

  __device__ __forceinline__ OwnedSums(StageLayout const& layout, Rows const& rows)
      : layout_(layout), rows_(rows) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int t = 0; t < kRankTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[j][t][i] = 0.0f;
      }
    }
  }

  // Adds the rows of a stage that belong to suffixes of this warp, slot by slot: so those of a
  // suffix are added in order.
  __device__ __forceinline__ void add(char const* stage, int32_t slots) {
    auto const* const prefixes = reinterpret_cast<Number const*>(stage + layout_.prefixes);
    typename Factors::Rows const d_rows(reinterpret_cast<Number const*>(stage + layout_.d_rows));
    auto const of_lane = rows_.suffixes_of_lane(slots);
    for (auto left = __ballot_sync(kFullWarp, of_lane != 0); left != 0; left &= left - 1) {
      auto const slot = __ffs(static_cast<int>(left)) - 1;
      auto const suffixes = __shfl_sync(kFullWarp, of_lane, slot);
      auto const row = rows_.row_of_lane(slot, suffixes, layout_.rows);
      auto const places = Factors::place_of(row);
      typename Factors::Prefix prefix;
      prefix.load(prefixes + slot * kPrefix);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        if ((suffixes >> (j * kInTile) & ((1u << kInTile) - 1)) == 0) continue;
        auto const from = j * kInTile + Factors::suffix_of_lane();
        auto const place = __shfl_sync(kFullWarp, places, from);
        Factors::add(prefix, Factors::right_of(d_rows, place), sums_[j]);
      }
    }
  }

  // Writes the sums as [num_suffixes, k, n].
  __device__ void write(float* out) const {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      auto const column = j * kTileColumns + sum_column(0);
      auto const own = column / kColumns;
      if (!rows_.exists(own)) continue;
      auto* const to =
          out + (int64_t{rows_.first()} + own) * (Factors::kRanks * kColumns) + column % kColumns;
#pragma unroll
      for (int i = 0; i < 2 * kRankTiles; ++i) {
        auto const rank = Factors::rank_of_lane(i);
        *reinterpret_cast<float2*>(to + rank * kColumns) = {sums_[j][i / 2][i % 2 * 2],
                                                            sums_[j][i / 2][i % 2 * 2 + 1]};
      }
    }
  }

 private:
  static constexpr int kInTile = kTileColumns / kColumns;  // suffixes
  static constexpr int kPrefix = kTileRows * (Factors::kRanks + StageLayout::kPad);

  StageLayout const& layout_;
  Rows const& rows_;
  float sums_[kTiles][kRankTiles][4];
};

}  // namespace dynemb::cuda
