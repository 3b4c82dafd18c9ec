// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/offsets.cu: where the bags of jagged inputs begin. Each block adds up all lengths
// before its bags by itself, since that takes less time than to wait for other blocks.
#include <algorithm>
#include <cstring>

#include "core/offsets.h"
#include "cuda/grid/call.cuh"
#include "cuda/grid/host.h"
#include "cuda/grid/warp.cuh"
#include "cuda/launch.h"

namespace dynemb::cuda {
namespace {

constexpr int kScanThreads = 1024;
constexpr int kScanWarps = kScanThreads / 32;
constexpr int kWordsInFlight = 8;  // of 16 bytes, of a thread that adds up what is before its block
constexpr int64_t kMostBlocks =
    128;  // so that all of them read less than a hundred times the input

// What some bags add to the sum of those before them.
struct Sum {
  uint32_t ids;
  uint32_t negative;  // lengths
};

__device__ __forceinline__ Sum add(BagLengths const& bags, Sum const& a, Sum const& b) {
  return {add_lengths(bags, a.ids, b.ids), a.negative + b.negative};
}

__device__ __forceinline__ Sum sum_of(BagLength const& bag) {
  return {bag.ids, bag.is_negative ? 1u : 0u};
}

// Returns the sum over the lanes up to this one.
__device__ __forceinline__ Sum add_up_to_lane(BagLengths const& bags, Sum sum) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    auto const before = Sum{__shfl_up_sync(kFullWarp, sum.ids, distance),
                            __shfl_up_sync(kFullWarp, sum.negative, distance)};
    if (lane_id() >= distance) sum = add(bags, before, sum);
  }
  return sum;
}

// Adds up over the threads of a block: a thread gets the sum of those before it, and of all.
struct BlockSums {
  Sum before, all;

  // Reached by all threads. The array is shared memory, which no thread uses when it returns.
  __device__ __forceinline__ BlockSums(BagLengths const& bags, Sum const& own,
                                       Sum (&of_warps)[kScanWarps]) {
    auto const warp = static_cast<int>(threadIdx.x / 32);
    auto const up_to = add_up_to_lane(bags, own);
    if (lane_id() == 31) of_warps[warp] = up_to;
    __syncthreads();
    if (warp == 0) of_warps[lane_id()] = add_up_to_lane(bags, of_warps[lane_id()]);
    __syncthreads();
    auto const before_lane =
        Sum{__shfl_up_sync(kFullWarp, up_to.ids, 1), __shfl_up_sync(kFullWarp, up_to.negative, 1)};
    before = warp == 0 ? Sum{0, 0} : of_warps[warp - 1];
    if (lane_id() > 0) before = add(bags, before, before_lane);
    all = of_warps[kScanWarps - 1];
    __syncthreads();
  }
};

// Adds up lengths without a test for each whether the sum is past the end: 2^32 of them fit.
struct WideSum {
  uint64_t ids = 0;
  uint32_t negative = 0;

  template <class Length>
  __device__ __forceinline__ void add(BagLengths const& bags, Length length) {
    auto const bag = bag_of_length(bags, as_length(length));
    ids += bag.ids;
    negative += bag.is_negative ? 1 : 0;
  }
};

// The sum of a thread's part of the bags before `end`, one at a time.
__device__ __noinline__ Sum slow_part(BagLengths const& bags, int64_t end) {
  Sum sum{0, 0};
  for (int64_t bag = threadIdx.x; bag < end; bag += kScanThreads) {
    sum = add(bags, sum, sum_of(length_of_bag(bags, bag)));
  }
  return sum;
}

// The same in words of 16 bytes; `end` is a multiple of kScanThreads.
template <class Length>
__device__ __forceinline__ Sum part_before(BagLengths const& bags, Length const*, int64_t end) {
  constexpr int kOfWord = sizeof(uint4) / sizeof(Length);
  struct Word {
    Length lengths[kOfWord];
  };
  if (reinterpret_cast<uintptr_t>(bags.lengths) % sizeof(uint4) != 0) return slow_part(bags, end);
  auto const* const words = static_cast<uint4 const*>(bags.lengths);
  auto const count = end / kOfWord;
  WideSum sum;
  for (int64_t base = threadIdx.x; base < count; base += kScanThreads * kWordsInFlight) {
    uint4 own[kWordsInFlight];
#pragma unroll
    for (int i = 0; i < kWordsInFlight; ++i) {  // without a branch, so that all are on their way
      own[i] = words[min(base + i * kScanThreads, count - 1)];
    }
#pragma unroll
    for (int i = 0; i < kWordsInFlight; ++i) {
      Word word;
      memcpy(&word, &own[i], sizeof(word));
#pragma unroll
      for (auto const length : word.lengths) {
        sum.add(bags, base + i * kScanThreads < count ? length : Length{0});
      }
    }
  }
  auto const past = static_cast<uint64_t>(bags.capacity) + 1;
  return {static_cast<uint32_t>(min(sum.ids, past)), sum.negative};
}

__device__ __forceinline__ Sum part_before(BagLengths const& bags, int64_t end) {
  switch (bags.type) {
    case LengthType::kInt32:
      return part_before(bags, static_cast<int32_t const*>(nullptr), end);
    case LengthType::kUInt32:
      return part_before(bags, static_cast<uint32_t const*>(nullptr), end);
    case LengthType::kInt64:
      return part_before(bags, static_cast<int64_t const*>(nullptr), end);
    case LengthType::kUInt64:
      break;
  }
  return part_before(bags, static_cast<uint64_t const*>(nullptr), end);
}

// Writes the offsets behind the bags from `first` to `last`; returns the sum up to there. Adds the
// thread's bags that were cut to `cut`.
template <bool kWrites>
__device__ __forceinline__ Sum scan(BagLengths const& bags, int64_t first, int64_t last, Sum carry,
                                    uint32_t* cut, Sum (&of_warps)[kScanWarps]) {
  for (auto base = first; base < last; base += kScanThreads) {
    auto const bag = base + threadIdx.x;
    auto const length = bag < last ? length_of_bag(bags, bag) : BagLength{0, false};
    auto const sums = BlockSums(bags, sum_of(length), of_warps);
    auto const before = add(bags, carry, sums.before);
    if (is_cut(bags, before.ids, length)) ++*cut;
    if (kWrites && bag < last) {
      bags.offsets[bag + 1] = offset_of_sum(bags, add_lengths(bags, before.ids, length.ids));
    }
    carry = add(bags, carry, sums.all);
  }
  return carry;
}

// The bags that were cut, where there are any beside the negative ones.
__device__ __noinline__ uint32_t count_cut(BagLengths const& bags, Sum (&of_warps)[kScanWarps]) {
  uint32_t cut = 0;
  scan<false>(bags, 0, bags.num_bags, {0, 0}, &cut, of_warps);
  return BlockSums(bags, {0, cut}, of_warps).all.negative;
}

// The bags of a block: so many that a feature has kMostBlocks at most.
__host__ __device__ __forceinline__ int64_t bags_per_block(BagLengths const& bags) {
  constexpr int64_t kOfTurn = kMostBlocks * kScanThreads;
  return (max(bags.num_bags, int64_t{1}) + kOfTurn - 1) / kOfTurn * kScanThreads;
}

// The members that feature_of_block reads are named as those of CallArgs.
template <int kFeatures>
struct OffsetsCall {
  int32_t num_features;
  BagLengths features[kFeatures];
  uint32_t first_block[kFeatures + 1];  // of each feature
  uint32_t blocks_of_each;              // feature, if all have as many; else 0
};

template <int kFeatures>
__global__ void __launch_bounds__(kScanThreads)
    offsets_kernel(__grid_constant__ OffsetsCall<kFeatures> const call) {
  __shared__ Sum of_warps[kScanWarps];
  auto const f = feature_of_block(call, blockIdx.x);
  auto const& bags = call.features[f];
  auto const per_block = bags_per_block(bags);
  auto const first = (blockIdx.x - call.first_block[f]) * per_block;
  auto const last = min(first + per_block, bags.num_bags);
  if (first == 0 && threadIdx.x == 0) bags.offsets[0] = 0;
  auto const before = BlockSums(bags, part_before(bags, first), of_warps).all;
  uint32_t cut = 0;
  auto const all = scan<true>(bags, first, last, before, &cut, of_warps);
  if (last < bags.num_bags) return;
  auto const is_past = all.ids > static_cast<uint32_t>(bags.capacity);
  auto const malformed = is_past ? count_cut(bags, of_warps) : all.negative;
  if (threadIdx.x == 0) *bags.malformed = malformed;
}

template <int kFeatures>
cudaError_t launch_offsets(OffsetsArgs const& args, cudaStream_t stream) {
  OffsetsCall<kFeatures> call;
  call.num_features = args.num_features;
  uint32_t blocks = call.first_block[0] = 0;
  auto same = true;
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto const& bags = args.features[f];
    call.features[f] = bags;
    auto const own = ceil_div(std::max<int64_t>(1, bags.num_bags), bags_per_block(bags));
    blocks += static_cast<uint32_t>(own);
    call.first_block[f + 1] = blocks;
    same = same && own == call.first_block[1];
  }
  call.blocks_of_each = same ? call.first_block[1] : 0;
  return launch(offsets_kernel<kFeatures>, blocks, stream, call, 0, kScanThreads);
}

}  // namespace

size_t offsets_scratch_bytes(OffsetsArgs const& /*args*/) { return 0; }

// A kernel's parameter has three sizes, because the host copies all of it.
cudaError_t offsets(OffsetsArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  if (args.num_features == 0) return cudaSuccess;
  if (args.num_features == 1) return launch_offsets<1>(args, stream);
  if (args.num_features <= 32) return launch_offsets<32>(args, stream);
  return launch_offsets<kMaxFeatures>(args, stream);
}

}  // namespace dynemb::cuda
