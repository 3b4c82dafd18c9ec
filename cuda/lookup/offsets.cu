// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/offsets.cu: where the bags of a jagged input begin. One block walks over all lengths,
// some thousand at a time, and carries the sum along: a million bags take a quarter of a
// millisecond, and a few thousand no longer than a launch.
#include "core/offsets.h"
#include "cuda/grid/host.h"
#include "cuda/grid/warp.cuh"
#include "cuda/launch.h"

namespace dynemb::cuda {
namespace {

constexpr int kScanThreads = 1024;
constexpr int kScanWarps = kScanThreads / 32;
constexpr int kBagsOfThread = 4;  // side by side

// Returns the sum over the lanes up to this one.
__device__ __forceinline__ uint32_t add_up_to_lane(OffsetsArgs const& args, uint32_t sum) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    auto const before = __shfl_up_sync(kFullWarp, sum, distance);
    if (lane_id() >= distance) sum = add_lengths(args, before, sum);
  }
  return sum;
}

// Holds the bags of one thread, and their sum.
struct OwnBags {
  BagLength lengths[kBagsOfThread];
  uint32_t sum = 0;

  __device__ __forceinline__ OwnBags(OffsetsArgs const& args, int64_t first) {
#pragma unroll
    for (int i = 0; i < kBagsOfThread; ++i) {
      auto const bag = first + i;
      lengths[i] = bag < args.num_bags ? length_of_bag(args, bag) : BagLength{0, false};
    }
#pragma unroll
    for (auto const& length : lengths) sum = add_lengths(args, sum, length.ids);
  }
};

__global__ void __launch_bounds__(kScanThreads)
    offsets_kernel(__grid_constant__ OffsetsArgs const args) {
  __shared__ uint32_t of_warps[kScanWarps];  // sums, then those up to each warp
  auto const thread = static_cast<int>(threadIdx.x);
  auto const warp = thread / 32;
  uint32_t carry = 0;
  int malformed = 0;
  constexpr int64_t kBagsOfTurn = kScanThreads * kBagsOfThread;
  if (thread == 0) args.offsets[0] = 0;
  for (int64_t base = 0; base < args.num_bags; base += kBagsOfTurn) {
    auto const first = base + thread * kBagsOfThread;
    auto const own = OwnBags(args, first);
    auto const up_to = add_up_to_lane(args, own.sum);
    auto const before_lane = __shfl_up_sync(kFullWarp, up_to, 1);
    if (lane_id() == 31) of_warps[warp] = up_to;
    __syncthreads();
    if (warp == 0) of_warps[lane_id()] = add_up_to_lane(args, of_warps[lane_id()]);
    __syncthreads();
    auto sum = warp == 0 ? carry : add_lengths(args, carry, of_warps[warp - 1]);
    if (lane_id() > 0) sum = add_lengths(args, sum, before_lane);
    for (int i = 0; i < kBagsOfThread && first + i < args.num_bags; ++i) {
      malformed += is_cut(args, sum, own.lengths[i]) ? 1 : 0;
      sum = add_lengths(args, sum, own.lengths[i].ids);
      args.offsets[first + i + 1] = offset_of_sum(args, sum);
    }
    carry = add_lengths(args, carry, of_warps[kScanWarps - 1]);
    __syncthreads();  // all have read of_warps
  }
  auto const of_warp = __reduce_add_sync(kFullWarp, static_cast<unsigned>(malformed));
  if (lane_id() == 0) of_warps[warp] = of_warp;
  __syncthreads();
  if (warp != 0) return;
  auto const total = __reduce_add_sync(kFullWarp, of_warps[lane_id()]);
  if (lane_id() == 0) *args.malformed = total;
}

}  // namespace

size_t offsets_scratch_bytes(OffsetsArgs const& /*args*/) { return 0; }

cudaError_t offsets(OffsetsArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  return launch(offsets_kernel, 1, stream, args, 0, kScanThreads);
}

}  // namespace dynemb::cuda
