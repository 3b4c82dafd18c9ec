// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/stage_copies.cuh: prefixes and gradients of rows in shared memory: where they
// lie there, and how the warps of a block copy them.
#pragma once

#include "core/value_type.h"
#include "cuda/grid/async_copy.cuh"
#include "cuda/tensor_train/staged_rows.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

// Bytes of shared memory: suffixes of the staged rows, prefixes of the slots, gradients of rows.
struct StageLayout {
  static constexpr int32_t kPad = 8;  // numbers: rows of a prefix then lie in different banks

  int32_t slots, rows;              // of a stage; behind the last row there is one of zeros
  int32_t prefixes, d_rows, bytes;  // where they begin; of all

  // Two stages take `all` bytes at most; no slots: that is too little.
  static StageLayout of(PairShape const& shape, int64_t all) {
    auto const number = static_cast<int64_t>(is_half(shape) ? sizeof(BFloat16) : sizeof(float));
    auto const row_size = number * shape.m * shape.n;
    auto const most = all / 2 - row_size;
    auto const prefix_size = number * shape.m * (shape.k + kPad);
    for (auto slots = kMostSlots; slots > 0; slots /= 2) {
      auto const left = most - slots * prefix_size;
      auto rows = left / (row_size + int64_t{sizeof(int32_t)}) / 4 * 4;
      if (rows > slots * kRowsOfSlot) rows = slots * kRowsOfSlot;
      if (rows < kRowsOfSlot || (slots > 1 && left < most / 2)) continue;
      auto const prefixes = rows * int64_t{sizeof(int32_t)};
      auto const d_rows = prefixes + slots * prefix_size;
      return {slots, static_cast<int32_t>(rows), static_cast<int32_t>(prefixes),
              static_cast<int32_t>(d_rows), static_cast<int32_t>(d_rows + (rows + 1) * row_size)};
    }
    return {};
  }
};

// What stages are copied from.
template <class Number>
struct StageSources {
  PairShape shape;  // m, k and n are powers of two
  Number const* prefix;
  Number const* d_rows;
  StageLayout layout;
};

// Gradients of rows are swizzled where single numbers are read: those of rows side by side lie in
// other banks.
template <class Number>
struct StagedGradients {
  static constexpr int32_t kSwizzle = sizeof(Number) == 4 ? 16 : 0;

  int32_t row_size;  // a multiple of 32

  // Where number `i` of row `row` of a stage is, from the first row on.
  __device__ __forceinline__ int32_t place(int32_t row, int32_t i) const {
    return row * row_size + (i ^ ((row & 1) * kSwizzle));
  }
};

// Where row m of a prefix is, of rows of bfloat16 with four columns: even ones first, since 16
// bytes of a row of the table hold one of either kind (cuda/tensor_train/owned_halves.cuh).
template <class Number>
__device__ __forceinline__ int32_t staged_place(PairShape const& shape, int32_t m) {
  if (sizeof(Number) == 4 || shape.n != 4) return m;
  return m % 2 * (kTileRows / 2) + m / 2;
}

// All threads of a block copy together: each warp a slot, or a part of one.
template <class Number>
class StageCopies {
 public:
  __device__ StageCopies(StageSources<Number> const& sources, int64_t* row_offsets)
      : sources_(sources),
        layout_(sources.layout),
        row_offsets_(row_offsets),
        gradients_{sources.shape.m * sources.shape.n} {
    auto const warps = static_cast<int32_t>(blockDim.x) / 32;
    auto const m = static_cast<int32_t>(threadIdx.x);
    if (m < sources.shape.m) row_offsets[m] = prefix_row_offset(sources.shape, m);
    auto const warp = static_cast<int32_t>(threadIdx.x) / 32;
    slot_ = warp % layout_.slots;
    first_ = lane_id() + warp / layout_.slots * 32;
    step_ = warps / layout_.slots * 32;
    chunks_of_row_ = 31 - __clz(gradients_.row_size / kOfChunk);
    chunks_of_ranks_ = 31 - __clz(sources.shape.k / kOfChunk);
  }

  // The slot whose suffixes this warp copies; -1: it copies none.
  __device__ __forceinline__ int32_t slot_of_suffixes() const { return first_ < 32 ? slot_ : -1; }

  // The offsets of rows are there.
  __device__ __forceinline__ void begin(StagePlan const& plan, char* stage) const {
    if (slot_ >= plan.count) return;
    auto const slot = plan.slots[slot_];
    copy_rows(slot, stage);
    copy_prefix(slot, stage);
  }

  // Rounds what this thread has copied of a prefix, float32, to TF32: many warps read it.
  __device__ __forceinline__ void round_prefix(StagePlan const& plan, char* stage) const {
    if (slot_ >= plan.count) return;
    for_chunks_of_prefix(stage, [&](Number* place, int32_t, int32_t) {
      auto& four = *reinterpret_cast<float4*>(place);
      four = {rounded(four.x), rounded(four.y), rounded(four.z), rounded(four.w)};
    });
  }

 private:
  static constexpr int32_t kOfChunk = 16 / sizeof(Number);

  static __device__ __forceinline__ float rounded(float x) {
    return __uint_as_float(rounded_to_tf32(x));
  }

  __device__ __forceinline__ void copy_rows(Slot const& slot, char* stage) const {
    if (first_ < slot.count) {
      auto* const suffixes = reinterpret_cast<int32_t*>(stage) + slot.staged;
      begin_copy(suffixes + first_, sources_.shape.of_suffix + slot.first + first_);
    }
    auto const row_size = gradients_.row_size;
    auto const* const from = sources_.d_rows + int64_t{slot.first} * row_size;
    auto* const to = reinterpret_cast<Number*>(stage + layout_.d_rows);
    for (auto i = first_; i < slot.count << chunks_of_row_; i += step_) {
      auto const row = i >> chunks_of_row_;
      auto const at = kOfChunk * i;
      auto const place = gradients_.place(slot.staged + row, at - row * row_size);
      begin_copy(vector(to + place), vector(from + at));
    }
  }

  __device__ __forceinline__ void copy_prefix(Slot const& slot, char* stage) const {
    auto const& shape = sources_.shape;
    auto const* const from = sources_.prefix + prefix_offset(shape, slot.prefix);
    for_chunks_of_prefix(stage, [&](Number* to, int32_t m, int32_t rank) {
      begin_copy(vector(to), vector(from + row_offsets_[m] + rank));
    });
  }

  // Calls body(place, m, rank) for the chunks of its slot's prefix that this thread copies.
  template <class Body>
  __device__ __forceinline__ void for_chunks_of_prefix(char* stage, Body const& body) const {
    auto const& shape = sources_.shape;
    auto const stride = shape.k + StageLayout::kPad;
    auto* const to = reinterpret_cast<Number*>(stage + layout_.prefixes) + slot_ * shape.m * stride;
    for (auto i = first_; i < shape.m << chunks_of_ranks_; i += step_) {
      auto const m = i >> chunks_of_ranks_;
      auto const rank = kOfChunk * i - m * shape.k;
      body(to + staged_place<Number>(shape, m) * stride + rank, m, rank);
    }
  }

  static __device__ uint4* vector(Number* at) { return reinterpret_cast<uint4*>(at); }
  static __device__ uint4 const* vector(Number const* at) {
    return reinterpret_cast<uint4 const*>(at);
  }

  StageSources<Number> const& sources_;
  StageLayout const& layout_;
  int64_t const* row_offsets_;
  StagedGradients<Number> gradients_;
  int32_t slot_, first_, step_;
  int chunks_of_row_, chunks_of_ranks_;  // powers of two
};

}  // namespace dynemb::cuda
