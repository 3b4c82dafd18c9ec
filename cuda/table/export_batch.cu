// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/table/export_batch.cu: the live rows of a range of buckets, compacted in order: a warp
// counts a bucket, a scan places it, a warp writes it.
#include <cub/device/device_scan.cuh>

#include "core/table_ref.h"
#include "cuda/grid/host.h"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {
namespace {

constexpr int kTurns = kBucketCapacity / 32;  // of a warp over a bucket

struct ExportCall {
  ExportArgs args;
  int32_t* counts;  // [num_buckets + 1], the last one is 0
  int32_t* starts;  // [num_buckets + 1], the last one is the total
};

// The bucket of this warp, counted from the first of the range; one past the end does the total.
__device__ __forceinline__ int64_t bucket_of_warp() {
  return int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
}

// Returns the lanes that export their slot, in this turn over the bucket.
__device__ __forceinline__ unsigned exported_lanes(ExportArgs const& args, int64_t bucket,
                                                   int turn) {
  auto const index = *args.first_bucket + bucket;
  auto const in_shard =
      static_cast<uint64_t>(index) < static_cast<uint64_t>(args.table.local_buckets);
  if (bucket >= args.num_buckets || !in_shard) return 0;
  auto const score = bucket_at(args.table, index).entries[turn * 32 + lane_id()].score;
  return __ballot_sync(kFullWarp, score != kEmptyScore && score >= *args.min_score);
}

__global__ void __launch_bounds__(kThreads) count_kernel(__grid_constant__ ExportCall const call) {
  auto const bucket = bucket_of_warp();
  if (bucket > call.args.num_buckets) return;
  int32_t count = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    count += __popc(exported_lanes(call.args, bucket, turn));
  }
  if (lane_id() == 0) call.counts[bucket] = count;
}

__device__ __forceinline__ void write_slot(ExportArgs const& args, int64_t bucket, int place,
                                           int64_t to) {
  auto const index = *args.first_bucket + bucket;
  auto const entry = bucket_at(args.table, index).entries[place];
  args.keys[to] = entry.key;
  args.scores[to] = entry.score;
  args.slots[to] = static_cast<int32_t>(index * kBucketCapacity + place);
}

__global__ void __launch_bounds__(kThreads) write_kernel(__grid_constant__ ExportCall const call) {
  auto const& args = call.args;
  auto const bucket = bucket_of_warp();
  if (bucket > args.num_buckets) return;
  auto const total = call.starts[args.num_buckets];
  if (bucket == args.num_buckets) {
    if (lane_id() == 0) *args.count = total;
    return;
  }
  auto next = int64_t{call.starts[bucket]};
  for (int turn = 0; turn < kTurns; ++turn) {
    auto const lanes = exported_lanes(args, bucket, turn);
    if ((lanes >> lane_id() & 1) != 0) {
      write_slot(args, bucket, turn * 32 + lane_id(), next + __popc(lanes & lanes_below()));
    }
    next += __popc(lanes);
    // The places of this bucket in the results, where the rows of the range do not reach so far.
    auto const unused = bucket * kBucketCapacity + turn * 32 + lane_id();
    if (unused < total) continue;
    args.keys[unused] = kEmptyKey;
    args.scores[unused] = kEmptyScore;
    args.slots[unused] = -1;
  }
}

struct ExportScratch {
  int32_t* counts;
  int32_t* starts;
  size_t temporary_bytes = 0;
  void* temporary;

  ExportScratch(ExportArgs const& args, Scratch& scratch)
      : counts(scratch.take<int32_t>(args.num_buckets + 1)),
        starts(scratch.take<int32_t>(args.num_buckets + 1)) {
    cub::DeviceScan::ExclusiveSum(nullptr, temporary_bytes, counts, starts, args.num_buckets + 1);
    temporary = scratch.take<char>(static_cast<int64_t>(temporary_bytes));
  }
};

}  // namespace

size_t export_batch_scratch_bytes(ExportArgs const& args) {
  Scratch scratch(nullptr);
  ExportScratch(args, scratch);
  return scratch.used();
}

cudaError_t export_batch(ExportArgs const& args, void* memory, cudaStream_t stream) {
  Scratch pieces(memory);
  ExportScratch const scratch(args, pieces);
  auto const call = ExportCall{args, scratch.counts, scratch.starts};
  auto const blocks = static_cast<unsigned>(ceil_div(args.num_buckets + 1, kWarpsPerBlock));
  count_kernel<<<blocks, kThreads, 0, stream>>>(call);
  DYNEMB_CUDA_TRY(cudaGetLastError());
  auto bytes = scratch.temporary_bytes;
  DYNEMB_CUDA_TRY(cub::DeviceScan::ExclusiveSum(scratch.temporary, bytes, scratch.counts,
                                                scratch.starts, args.num_buckets + 1, stream));
  write_kernel<<<blocks, kThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace dynemb::cuda
