// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/grid/warp.cuh: the lanes of a warp: all of them as the Group of core/group.h, and tiles of
// those that share a row.
#pragma once

#include <cstdint>

namespace dynemb::cuda {

// Before anything else in a kernel of launch_early(): what earlier kernels have written is there.
__device__ __forceinline__ void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Once all blocks have said so, or ended, those of the next kernel may take the places that are
// free. Only for a kernel with more blocks than places: else those that end first would have most
// of the next one's.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

constexpr unsigned kFullWarp = 0xffffffffu;

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x % 32); }
__device__ __forceinline__ unsigned lanes_below() { return (1u << lane_id()) - 1u; }

// Returns the lanes from `first` on, `width` of them.
__device__ __forceinline__ unsigned lane_mask(int first, int width) {
  return (kFullWarp >> (32 - width)) << first;
}

// Returns the sum over the lanes up to this one. Reached by all lanes of a warp.
__device__ __forceinline__ uint32_t sum_up_to_lane(uint32_t value) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    auto const other = __shfl_up_sync(kFullWarp, value, static_cast<unsigned>(distance));
    if (lane_id() >= distance) value += other;
  }
  return value;
}

// Returns the sum over all lanes. Reached by all lanes of a warp.
template <class Number>
__device__ __forceinline__ Number sum_of_warp(Number value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kFullWarp, value, distance);
  }
  return value;
}

struct WarpGroup {
  static constexpr int kLeastSize = 32;

  __device__ int size() const { return 32; }
  __device__ int rank() const { return lane_id(); }

  __device__ unsigned ballot(bool value) const { return __ballot_sync(kFullWarp, value); }

  __device__ uint64_t min(uint64_t value) const {
    auto const high = static_cast<uint32_t>(value >> 32);
    auto const least = __reduce_min_sync(kFullWarp, high);
    auto const low = high == least ? static_cast<uint32_t>(value) : ~0u;
    return uint64_t{least} << 32 | __reduce_min_sync(kFullWarp, low);
  }

  __device__ uint64_t broadcast(uint64_t value, int rank) const {
    return __shfl_sync(kFullWarp, value, rank);
  }
};

constexpr int kColumnsOfWarp = 32 * 4;  // in one step

// As many lanes as a row of `dim` columns keeps busy, four columns each: a power of two.
__host__ __device__ __forceinline__ int lanes_of_row(int32_t dim) {
  int lanes = 1;
  while (lanes < 32 && lanes * 4 < dim) lanes *= 2;
  return lanes;
}

// A tile of lanes; their number is known at run time.
struct RowTile {
  int lanes;
  int rank;      // of this lane in its tile
  int index;     // of the tile in its warp
  int per_warp;  // tiles

  __device__ explicit RowTile(int lanes)
      : lanes(lanes),
        rank(lane_id() & (lanes - 1)),
        index(lane_id() / lanes),
        per_warp(32 / lanes) {}

  // RowTile(lanes_of_row(dim)), for a kernel that uses it for a few rows only: in shifts, where a
  // loop and two divisions take a hundred instructions.
  __device__ static RowTile of_row(int32_t dim) {
    auto const lanes = min(32, 1 << (32 - __clz((dim - 1) / 4)));
    auto const shift = __ffs(lanes) - 1;
    return {lanes, lane_id() & (lanes - 1), lane_id() >> shift, 32 >> shift};
  }

  __device__ unsigned mask() const { return lane_mask(index * lanes, lanes); }
  __device__ int32_t first_column() const { return rank * 4; }
  __device__ int32_t step() const { return lanes * 4; }

 private:
  __device__ RowTile(int lanes, int rank, int index, int per_warp)
      : lanes(lanes), rank(rank), index(index), per_warp(per_warp) {}
};

}  // namespace dynemb::cuda
