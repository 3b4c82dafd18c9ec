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

  // Adds the rows of a stage that belong to suffixes of this warp. Where slots have several rows,
  // slot by slot: a prefix is read once, and the products of a slot do not wait for each other.
  // Slots of few rows have none for most warps, so rows are found one by one. Either way those of a
  // suffix are added in order.
  __device__ __forceinline__ void add(char const* stage, StagePlan const& plan) {
    auto const& last = plan.slots[plan.count - 1];
    auto const rows = last.staged + last.count;
    if constexpr (Factors::kRowsOfFullSlot > 0) {
      if (rows >= Factors::kRowsOfFullSlot * plan.count) return add_slots(stage, plan);
    }
    add_rows(stage, rows);
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

  static constexpr int kPrefix = kTileRows * (Factors::kRanks + StageLayout::kPad);

  __device__ __forceinline__ void add_slots(char const* stage, StagePlan const& plan) {
    auto ahead = staged_row(stage, plan.slots[0].staged, plan.slots[0].count);
    for (int32_t i = 0; i < plan.count; ++i) {
      auto const own = ahead.own;
      auto const first = plan.slots[i].staged;
      if (i + 1 < plan.count) {
        ahead = staged_row(stage, plan.slots[i + 1].staged, plan.slots[i + 1].count);
      }
      auto const tile = own * kColumns / kTileColumns;
      auto const tiles = __reduce_or_sync(kFullWarp, own == kNone ? 0u : 1u << tile);
      if (tiles == 0) continue;
      typename Factors::Prefix prefix;
      prefix.load(prefix_at(stage, i));
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        if ((tiles >> j & 1) == 0) continue;
        Factors::add(prefix, Factors::right_of(tile_of(stage, first, j, own)), sums_[j]);
      }
    }
  }

  __device__ __forceinline__ void add_rows(char const* stage, int32_t count) {
    typename Factors::Prefix prefix{};
    auto held = -1;  // the slot of that prefix
    auto ahead = staged_row(stage, 0, count);
    for (int32_t base = 0; base < count; base += 32) {
      auto const row = ahead;
      ahead = staged_row(stage, base + 32, count - base - 32);
      auto left = __ballot_sync(kFullWarp, row.own != kNone);
      while (left != 0) {
        auto const lane = __ffs(static_cast<int>(left)) - 1;
        left &= left - 1;
        auto const own = __shfl_sync(kFullWarp, row.own, lane);
        auto const slot = __shfl_sync(kFullWarp, row.slot, lane);
        auto first = base + lane, second = first;
        if constexpr (kColumns == 4) {  // a tile has two suffixes
          auto const next = __shfl_sync(kFullWarp, row.own, (lane + 1) % 32);
          auto const next_slot = __shfl_sync(kFullWarp, row.slot, (lane + 1) % 32);
          auto const odd = own % 2 != 0;
          auto const both = !odd && lane < 31 && next == own + 1 && next_slot == slot;
          if (!odd) second = both ? first + 1 : -1;
          if (odd) first = -1;
          if (both) left &= left - 1;
        }
        if (slot != held) prefix.load(prefix_at(stage, slot));
        held = slot;
        auto const right = Factors::right_of(tile_rows(stage, first, second));
        auto const tile = static_cast<int>(own * kColumns / kTileColumns);
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          if (j == tile) Factors::add(prefix, right, sums_[j]);
        }
      }
    }
  }

  __device__ __forceinline__ Number const* prefix_at(char const* stage, int32_t slot) const {
    return reinterpret_cast<Number const*>(stage + layout_.prefixes) + slot * kPrefix;
  }

  __device__ __forceinline__ StagedTile<Number> tile_rows(char const* stage, int32_t first,
                                                          int32_t second) const {
    return {first, second, reinterpret_cast<Number const*>(stage + layout_.d_rows),
            reinterpret_cast<Number const*>(stage + layout_.zeros)};
  }

  // The rows of a slot whose suffixes tile j has; `begin`: the first one of the slot.
  __device__ __forceinline__ StagedTile<Number> tile_of(char const* stage, int32_t begin, int j,
                                                        uint32_t own) const {
    constexpr int kInTile = kTileColumns / kColumns;  // suffixes
    auto const row_of = [&](int suffix) {
      auto const lanes = __ballot_sync(kFullWarp, own == static_cast<uint32_t>(suffix));
      return lanes == 0 ? -1 : begin + __ffs(static_cast<int>(lanes)) - 1;
    };
    return tile_rows(stage, row_of(j * kInTile), row_of(j * kInTile + kInTile - 1));
  }

  // Of a row of a stage: which of this warp's suffixes it has, and its slot.
  struct StagedRow {
    uint32_t own;
    int32_t slot;
  };

  // Row `lane` of the `count` from `first` on.
  __device__ __forceinline__ StagedRow staged_row(char const* stage, int32_t first,
                                                  int32_t count) const {
    auto const row = first + lane_id();
    if (lane_id() >= count) return {kNone, -1};
    auto const suffix = reinterpret_cast<int32_t const*>(stage)[row];
    auto const own = static_cast<uint32_t>(suffix) - static_cast<uint32_t>(first_);
    return {own < count_ ? own : kNone,
            reinterpret_cast<int32_t const*>(stage + layout_.slots_of)[row]};
  }

  StageLayout const& layout_;
  int32_t first_;   // of the suffixes
  uint32_t count_;  // of them
  float sums_[kTiles][kRankTiles][4];
};

}  // namespace dynemb::cuda
