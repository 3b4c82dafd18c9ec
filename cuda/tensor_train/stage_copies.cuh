// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/stage_copies.cuh: prefixes and gradients of rows in shared memory: where they
// lie there, and how the warps of a block copy them.
#pragma once

#include "cuda/grid/async_copy.cuh"
#include "cuda/tensor_train/staged_rows.cuh"

namespace dynemb::cuda {

// Floats of shared memory: suffixes of the staged rows, prefixes of the slots, gradients of rows.
struct StageLayout {
  static constexpr int32_t kPad = 8;  // so that four rows of a prefix lie in different banks

  int32_t slots, rows;  // of a stage
  int32_t prefixes, d_rows, floats;

  // Two stages take `bytes` at most; no slots: that is too little.
  static StageLayout of(PairShape const& shape, int64_t bytes) {
    auto const most = bytes / 2 / int64_t{sizeof(float)};
    auto const row_size = int64_t{shape.m} * shape.n;
    auto const prefix_size = int64_t{shape.m} * (shape.k + kPad);
    for (auto slots = kMostSlots; slots > 0; slots /= 2) {
      auto const left = most - slots * prefix_size;
      auto rows = left / (row_size + 1) / 4 * 4;
      if (rows > slots * kRowsOfSlot) rows = slots * kRowsOfSlot;
      if (rows < kRowsOfSlot || (slots > 1 && left < most / 2)) continue;
      auto const d_rows = rows + slots * prefix_size;
      return {slots, static_cast<int32_t>(rows), static_cast<int32_t>(rows),
              static_cast<int32_t>(d_rows), static_cast<int32_t>(d_rows + rows * row_size)};
    }
    return {};
  }
};

// What stages are copied from.
struct StageSources {
  PairShape shape;  // m, k and n are powers of two
  float const* prefix;
  float const* d_rows;
  StageLayout layout;
};

// Gradients of some rows are swizzled: those of rows side by side lie in other banks.
struct StagedGradients {
  int32_t row_size, swizzle;

  __device__ __forceinline__ explicit StagedGradients(PairShape const& shape)
      : row_size(shape.m * shape.n), swizzle(row_size % 32 == 0 ? 16 : 0) {}

  // Where number `i` of row `row` of a slot is, from the slot's first row on.
  __device__ __forceinline__ int32_t place(int32_t row, int32_t i) const {
    return row * row_size + (i ^ ((row & 1) * swizzle));
  }
};

// What all threads of a block copy: a slot, or a part of one, each warp.
class StageCopies {
 public:
  __device__ StageCopies(StageSources const& sources, int64_t* row_offsets)
      : sources_(sources),
        layout_(sources.layout),
        row_offsets_(row_offsets),
        gradients_(sources.shape) {
    auto const warps = static_cast<int32_t>(blockDim.x) / 32;
    auto const m = static_cast<int32_t>(threadIdx.x);
    if (m < sources.shape.m) row_offsets[m] = prefix_row_offset(sources.shape, m);
    auto const warp = static_cast<int32_t>(threadIdx.x) / 32;
    slot_ = warp % layout_.slots;
    first_ = lane_id() + warp / layout_.slots * 32;
    step_ = warps / layout_.slots * 32;
    chunks_of_row_ = 31 - __clz(gradients_.row_size) - 2;
    chunks_of_ranks_ = 31 - __clz(sources.shape.k) - 2;
  }

  // The offsets of rows are there.
  __device__ __forceinline__ void begin(StagePlan const& plan, float* stage) const {
    if (slot_ >= plan.count) return;
    auto const slot = plan.slots[slot_];
    copy_rows(slot, stage);
    copy_prefix(slot, stage);
  }

 private:
  __device__ __forceinline__ void copy_rows(Slot const& slot, float* stage) const {
    if (first_ < slot.count) {
      auto* const suffixes = reinterpret_cast<int32_t*>(stage) + slot.staged;
      begin_copy(suffixes + first_, sources_.shape.of_suffix + slot.first + first_);
    }
    auto const row_size = gradients_.row_size;
    auto const* const from = sources_.d_rows + int64_t{slot.first} * row_size;
    auto* const to = stage + layout_.d_rows + slot.staged * row_size;
    for (auto i = first_; i < slot.count << chunks_of_row_; i += step_) {
      auto const row = i >> chunks_of_row_;
      begin_copy(vector(to + gradients_.place(row, 4 * i - row * row_size)), vector(from + 4 * i));
    }
  }

  __device__ __forceinline__ void copy_prefix(Slot const& slot, float* stage) const {
    auto const& shape = sources_.shape;
    auto const stride = shape.k + StageLayout::kPad;
    auto const* const from = sources_.prefix + prefix_offset(shape, slot.prefix);
    auto* const to = stage + layout_.prefixes + slot_ * shape.m * stride;
    for (auto i = first_; i < shape.m << chunks_of_ranks_; i += step_) {
      auto const m = i >> chunks_of_ranks_;
      auto const rank = 4 * i - m * shape.k;
      begin_copy(vector(to + m * stride + rank), vector(from + row_offsets_[m] + rank));
    }
  }

  static __device__ uint4* vector(float* at) { return reinterpret_cast<uint4*>(at); }
  static __device__ uint4 const* vector(float const* at) {
    return reinterpret_cast<uint4 const*>(at);
  }

  StageSources const& sources_;
  StageLayout const& layout_;
  int64_t const* row_offsets_;
  StagedGradients gradients_;
  int32_t slot_, first_, step_;
  int chunks_of_row_, chunks_of_ranks_;  // powers of two
};

}  // namespace dynemb::cuda
