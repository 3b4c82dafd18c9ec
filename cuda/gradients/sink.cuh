// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/sink.cuh: what happens to the sum of a row's gradients is a Sink
// (cuda/gradients/update_rows.cuh, cuda/gradients/reduce.cu):
//   Sink::Loaded                     what it needs of a row, loaded beside the gradients
//   load(format, row, column, wanted) -> Loaded; undefined if not wanted
//   kStates                          optimizer states of a row at most
//   mark(table_index, table, slot)   kUnwritten if the row is new
//   learning_rate(table_index)       of a sink that needs nothing else of an optimizer; or anything
//   needs_squares(row)               whether the optimizer looks at the whole row first; then
//   rate(row, squares, loaded, ...)  the factor of the gradient, by all lanes; the lane for which
//                                    `stores` holds stores what it keeps of the row
//   rate_or_none(row, ...)           the same, or kNoRateBits for a row that is skipped
//   store(format, row, column, loaded, sum, rate)
//   any_needs_squares()              the same of any row
//   kChecksRows                      whether sums without a rate are checked before they are stored
//   kUpdatesRows                     instead of store(): update(tile, format, row, column, loaded,
//                                    sum), by all lanes of the tile that has the whole row
//   looks_ahead()                    whether rows of several steps have a walk for that, or for
//                                    squares
//   skips(table, counts)             whether rows whose sums are not finite stay as they are; the
//                                    lane for which `counts` holds counts one
//   kRowwise                         every row has a rate, found from Loaded::row_state
//   kSumsWholeRows                   whether there are kernels of WholeRows
//   kAhead, kWarps                   gradients of a tile in flight; warps of a multiprocessor
#pragma once

#include <cstdint>

#include "core/row.h"
#include "core/table_ref.h"
#include "core/value_type.h"
#include "cuda/grid/row_format.cuh"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

// Says where the states of a row lie. It is made once for a piece, since it takes six words of the
// table.
template <int kStates>
struct StateRows {
  float* rows[kStates];

  __device__ __forceinline__ float* at(int state) const {
    return state < kStates ? rows[state] : nullptr;
  }
};
template <>
struct StateRows<0> {
  __device__ __forceinline__ float* at(int) const { return nullptr; }
};

template <int kStates>
__device__ __forceinline__ StateRows<kStates> state_rows(TableRef const& table, int32_t slot) {
  StateRows<kStates> result;
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    result.rows[s] = s < table.num_states ? state_at(table, s, slot) : nullptr;
  }
  return result;
}
template <>
__device__ __forceinline__ StateRows<0> state_rows<0>(TableRef const&, int32_t) {
  return {};
}

// Holds a row with a complete sum.
template <int kStates>
struct SummedRow {
  TableRef const& table;
  char* values;  // of the row
  StateRows<kStates> states;
  int32_t dim;
  int32_t table_index;
  float learning_rate;  // Sink::learning_rate(table_index)
  int32_t slot;
  uint32_t first_item;  // the first of its positions in the batch
  bool is_new;          // its states are not written yet (core/row.h)
};

template <class Formats>
__device__ __forceinline__ auto format_of(TableRef const& table) {
  return make_format<typename Formats::Stored>(table.value_type,
                                               moves_vectors(table.values, table.dim));
}

__device__ __forceinline__ float square_of(float4 const& v) {
  return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
}

// A product with zero is zero, unless a factor is not finite.
__device__ __forceinline__ bool are_finite(float4 const& v) {
  return v.x * 0.0f + v.y * 0.0f + v.z * 0.0f + v.w * 0.0f == 0.0f;
}

// Whether a magnitude is 2 or more, as that of a number that is not finite is: one bit of each.
// Most gradients are smaller, and half an instruction for each of them is all that this takes.
template <int kCount>
__device__ __forceinline__ bool any_is_large(float4 const (&all)[kCount]) {
  uint32_t bits = 0;
#pragma unroll
  for (auto const& v : all) {
    bits |= float_bits(v.x) | float_bits(v.y) | float_bits(v.z) | float_bits(v.w);
  }
  return (bits & 0x4000'0000u) != 0;
}

// Not finite if one of the numbers is not; seldom also where all are.
template <int kCount>
__device__ __forceinline__ float sum_of_all(float4 const (&all)[kCount]) {
  auto sum = 0.0f;
#pragma unroll
  for (auto const& v : all) sum += (v.x + v.y) + (v.z + v.w);
  return sum;
}

// The rate of a row that stays as it is: a NaN that no arithmetic gives.
constexpr uint32_t kNoRateBits = 0x7fc0'5417u;

__device__ __forceinline__ bool is_no_rate(float rate) { return float_bits(rate) == kNoRateBits; }

// All lanes of a tile call this.
__device__ __forceinline__ bool all_of_tile(RowTile const& tile, bool value) {
  if (tile.lanes == 32) return __all_sync(kFullWarp, value) != 0;
  return __all_sync(tile.mask(), value) != 0;
}

// Adds up the values of all lanes of a tile; each gets the same bits. A tile that is a warp, the
// usual one, needs no mask.
__device__ __forceinline__ float sum_of_tile(RowTile const& tile, float value) {
  if (tile.lanes == 32) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      value += __shfl_xor_sync(kFullWarp, value, distance);
    }
    return value;
  }
  auto const mask = tile.mask();
#pragma unroll 1
  for (int distance = tile.lanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(mask, value, distance);
  }
  return value;
}

}  // namespace dynemb::cuda
