// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/ordered_sums.cuh: sums of the gradients of each group where the order of the
// positions is given (GivenOrder), for rows of at most 128 columns that vectors move.
//
// A run is all sorted positions of one group. A block has 256 positions, a tile of lanes as many as
// it has lanes. The tile adds up its own positions in registers. Sums of runs that cross tiles meet
// in shared memory, and those of runs that cross blocks in global memory, for the next kernel. So a
// run is added up in an order that its positions decide, and there are no atomics.
//
// The order is data. Slots and positions that do not exist are left out. A run in parts that lie
// apart has an undefined sum, but is written in its place.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/args.h"
#include "core/slot.h"
#include "cuda/grid/host.h"
#include "cuda/grid/row_format.cuh"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

constexpr int kOrderedSpan = 256;  // positions of a block, a thread each
constexpr int kOrderedWarps = kOrderedSpan / 32;

struct OrderedSumsCall {
  GivenOrder order;
  FeatureRef feature;  // its rows follow each other, as those of the sums do
  uint32_t limit;      // of slots
  int32_t dim;
  void* sums;
  float* partial;  // [blocks, 2, dim]: see OrderedBlock
};

// Reads the keys of single positions.
struct OrderedKeys {
  OrderedSumsCall const& call;

  // The group of a sorted position; -1: of none.
  __device__ __forceinline__ int32_t at(int64_t p) const {
    if (p >= call.feature.num_ids) return -1;
    auto const slot = call.order.slots[p];
    auto const position = static_cast<uint32_t>(call.order.positions[p]);
    return is_live(slot, call.limit) && position < call.feature.num_ids ? slot : -1;
  }
};

// Past what the caches hold of the gradients, which many positions read.
template <ValueType kType>
__device__ __forceinline__ void store_group(OrderedSumsCall const& call, int32_t group,
                                            int32_t column, float4 const& sum) {
  constexpr uint32_t kBytes = kType == ValueType::kFloat32 ? 4 : 2;
  auto* const row = nth_row(static_cast<char*>(call.sums), static_cast<uint32_t>(group),
                            static_cast<uint32_t>(call.dim) * kBytes);
  store_quad<true>(Vectors<kType>{}, row, column, call.dim, sum);
}

__device__ __forceinline__ float4* partial_sum(OrderedSumsCall const& call, int64_t block,
                                               int32_t which, int32_t column) {
  return reinterpret_cast<float4*>(call.partial + (2 * block + which) * call.dim + column);
}

// Holds the positions of a block. Of each tile it keeps two sums: 0, of the run that comes from the
// tile before, as far as it lies here; 1, of the run that begins here and goes on.
template <int kLanes, ValueType kType>
struct OrderedBlock {
  static constexpr int kTiles = kOrderedSpan / kLanes;
  static constexpr int kAhead = kLanes == 32 ? 8 : 4;   // rows of a tile in flight
  static constexpr int kBlocks = kLanes == 32 ? 3 : 5;  // of a multiprocessor
  static constexpr uint32_t kOwn = kFullWarp >> (32 - kLanes);

  struct Memory {
    float4 sums[kTiles][2][kLanes];
    int32_t last_key[kTiles];
    uint32_t begins[kTiles], ends[kTiles];  // bits of runs, by position in the tile
  };

  OrderedSumsCall const& call;
  Memory& memory;

  static __device__ __forceinline__ int32_t rank() { return lane_id() % kLanes; }
  static __device__ __forceinline__ int32_t tile() {
    return static_cast<int32_t>(threadIdx.x) / kLanes;
  }
  // Lanes without columns do what the last one with columns does.
  __device__ __forceinline__ int32_t column() const { return min(rank() * 4, call.dim - 4); }

  // What the positions of a tile are, one in each lane.
  struct Positions {
    int32_t key;
    uint32_t bag;
    float factor;
    uint32_t begins, ends;
  };

  __device__ __forceinline__ Positions load() const {
    auto const keys = OrderedKeys{call};
    auto const p = int64_t{blockIdx.x} * kOrderedSpan + threadIdx.x;
    Positions own{keys.at(p), 0, 0.0f, 0, 0};
    auto before = __shfl_up_sync(kFullWarp, own.key, 1);
    auto after = __shfl_sync(kFullWarp, own.key, (lane_id() + 1) % 32);
    if (lane_id() == 0) before = p == 0 ? -1 : keys.at(p - 1);
    if (lane_id() == 31) after = keys.at(p + 1);
    if (own.key >= 0) {
      auto const position = call.order.positions[p];
      auto const bag = bag_of(call.feature, position);
      own.bag = static_cast<uint32_t>(bag);
      own.factor = gradient_factor(call.feature, bag, position);
    }
    auto const shift = lane_id() / kLanes * kLanes;
    own.begins = __ballot_sync(kFullWarp, p == 0 || before != own.key) >> shift & kOwn;
    own.ends = __ballot_sync(kFullWarp, after != own.key) >> shift & kOwn;
    return own;
  }

  // Adds up the positions of a tile, and writes the sums of runs that lie in it.
  __device__ __forceinline__ void add(Positions const& own) const {
    auto const row_bytes = static_cast<uint32_t>(call.dim) * 4;
    auto const* const rows = static_cast<char const*>(call.feature.rows) + column() * 4;
    float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (int base = 0; base < kLanes; base += kAhead) {
      float4 quads[kAhead];
#pragma unroll
      for (int r = 0; r < kAhead; ++r) {
        auto const bag = __shfl_sync(kFullWarp, own.bag, base + r, kLanes);
        quads[r] = *reinterpret_cast<float4 const*>(nth_row(rows, bag, row_bytes));
      }
#pragma unroll
      for (int r = 0; r < kAhead; ++r) {
        auto const factor = __shfl_sync(kFullWarp, own.factor, base + r, kLanes);
        auto const key = __shfl_sync(kFullWarp, own.key, base + r, kLanes);
        auto const bit = 1u << (base + r);
        if ((own.begins & bit) != 0) sum = {0.0f, 0.0f, 0.0f, 0.0f};
        add_scaled(sum, factor, quads[r]);
        if ((own.ends & bit) == 0 || key < 0) continue;
        if ((own.begins & (2 * bit - 1)) != 0) {
          store_group<kType>(call, key, column(), sum);
        } else {
          memory.sums[tile()][0][rank()] = sum;
        }
      }
    }
    if (goes_on(own.ends)) memory.sums[tile()][own.begins != 0 ? 1 : 0][rank()] = sum;
    if (rank() != kLanes - 1) return;
    memory.last_key[tile()] = own.key;
    memory.begins[tile()] = own.begins;
    memory.ends[tile()] = own.ends;
  }

  // Whether the last run of a tile goes on in the next one.
  static __device__ __forceinline__ bool goes_on(uint32_t ends) {
    return (ends >> (kLanes - 1) & 1) == 0;
  }

  // Adds what the tiles from `next` on have of a run, and hands the sum on: to its group, or to
  // other blocks if it has a part there.
  __device__ __forceinline__ void finish(int32_t key, float4 sum, int32_t next,
                                         bool begins_here) const {
    auto ended = false;
    for (; next < kTiles && !ended; ++next) {
      add_scaled(sum, 1.0f, memory.sums[next][0][rank()]);
      ended = memory.ends[next] != 0;
    }
    if (key < 0) return;
    if (ended && begins_here) {
      store_group<kType>(call, key, column(), sum);
    } else {
      *partial_sum(call, blockIdx.x, begins_here ? 1 : 0, column()) = sum;
    }
  }

  // All tiles have added up their positions.
  __device__ __forceinline__ void meet() const {
    auto const t = tile();
    if (t == 0 && (memory.begins[0] & 1) == 0) {  // a run comes from the block before
      auto const ended = memory.ends[0] != 0;
      auto const key = OrderedKeys{call}.at(int64_t{blockIdx.x} * kOrderedSpan);
      auto const sum = memory.sums[0][0][rank()];
      finish(key, sum, ended ? kTiles : 1, false);
    }
    if (memory.begins[t] == 0 || !goes_on(memory.ends[t])) return;
    finish(memory.last_key[t], memory.sums[t][1][rank()], t + 1, true);
  }
};

template <int kLanes, ValueType kType>
__global__ void __launch_bounds__(kOrderedSpan, (OrderedBlock<kLanes, kType>::kBlocks))
    ordered_sums_kernel(__grid_constant__ OrderedSumsCall const call) {
  using Block = OrderedBlock<kLanes, kType>;
  __shared__ typename Block::Memory memory;
  Block const block{call, memory};
  block.add(block.load());
  __syncthreads();
  block.meet();
}

// The runs that cross blocks. A warp has a block of the kernel before, and adds what those behind
// it have of the run that goes on there; if there are many, all warps of a block add them together.
template <int kLanes, ValueType kType>
struct OrderedRuns {
  static constexpr int kTiles = 32 / kLanes;  // of a warp
  static constexpr int kAhead = 8;            // rows of a tile in flight
  static constexpr int64_t kMostOfWarp = 32;  // blocks behind the first one

  struct Memory {
    int64_t first[kOrderedWarps], count[kOrderedWarps];  // of each warp's run
    float4 sums[kOrderedWarps][kLanes];
  };

  OrderedSumsCall const& call;
  Memory& memory;

  static __device__ __forceinline__ int32_t warp() {
    return static_cast<int32_t>(threadIdx.x) / 32;
  }
  static __device__ __forceinline__ int32_t rank() { return lane_id() % kLanes; }
  __device__ __forceinline__ int32_t column() const { return min(rank() * 4, call.dim - 4); }

  // The group of the last position of a block; -1: it is of none, or does not go on.
  __device__ __forceinline__ int32_t going_on(int64_t block) const {
    auto const keys = OrderedKeys{call};
    auto const last = (block + 1) * kOrderedSpan - 1;
    auto const key = keys.at(last);
    return key == keys.at(last + 1) ? key : -1;
  }

  // Counts the blocks behind one that have some of its last run; 0 if that run does not begin
  // there. All lanes of a warp call this.
  __device__ __forceinline__ int64_t blocks_behind(int64_t block) const {
    auto const keys = OrderedKeys{call};
    auto const key = going_on(block);
    auto const start = block * kOrderedSpan;
    auto const begins = keys.at(start) != key || start == 0 || keys.at(start - 1) != key;
    if (key < 0 || !begins) return 0;
    int64_t count = 0;
    for (;;) {
      auto const own = keys.at((block + 1 + count + lane_id()) * kOrderedSpan) == key;
      auto const others = ~__ballot_sync(kFullWarp, own);
      if (others != 0) return count + __ffs(static_cast<int>(others)) - 1;
      count += 32;
    }
  }

  // Returns every `step`-th sum of blocks from `first` on, of `count`.
  __device__ __forceinline__ float4 sum_of(int64_t block, int64_t first, int64_t count,
                                           int64_t step) const {
    float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (auto i = first; i < count; i += kAhead * step) {
      float4 quads[kAhead];
#pragma unroll
      for (int r = 0; r < kAhead; ++r) {
        auto const at = i + r * step;
        quads[r] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (at < count) quads[r] = *partial_sum(call, block + 1 + at, 0, column());
      }
#pragma unroll
      for (int r = 0; r < kAhead; ++r) add_scaled(sum, 1.0f, quads[r]);
    }
    return sum;
  }

  // Returns the sum over the tiles of a warp, in all of them.
  static __device__ __forceinline__ float4 over_tiles(float4 sum) {
#pragma unroll
    for (int distance = kLanes; distance < 32; distance *= 2) {
      float4 const other{
          __shfl_xor_sync(kFullWarp, sum.x, distance), __shfl_xor_sync(kFullWarp, sum.y, distance),
          __shfl_xor_sync(kFullWarp, sum.z, distance), __shfl_xor_sync(kFullWarp, sum.w, distance)};
      add_scaled(sum, 1.0f, other);
    }
    return sum;
  }

  __device__ __forceinline__ void store(int64_t block, float4 sum) const {
    if (lane_id() >= kLanes) return;
    add_scaled(sum, 1.0f, *partial_sum(call, block, 1, column()));
    store_group<kType>(call, going_on(block), column(), sum);
  }

  __device__ __forceinline__ void add_alone(int64_t block, int64_t count) const {
    store(block, over_tiles(sum_of(block, lane_id() / kLanes, count, kTiles)));
  }

  // All threads of a block call this.
  __device__ __forceinline__ void add_together(int64_t block, int64_t count) const {
    auto const tile = warp() * kTiles + lane_id() / kLanes;
    auto const sum = over_tiles(sum_of(block, tile, count, kOrderedWarps * kTiles));
    if (lane_id() < kLanes) memory.sums[warp()][rank()] = sum;
    __syncthreads();
    if (warp() == 0) {
      float4 all{0.0f, 0.0f, 0.0f, 0.0f};
      for (auto const& of_warp : memory.sums) add_scaled(all, 1.0f, of_warp[rank()]);
      store(block, all);
    }
    __syncthreads();
  }

  __device__ __forceinline__ void run(int64_t blocks) const {
    auto const own = int64_t{blockIdx.x} * kOrderedWarps + warp();
    auto const count = own < blocks ? blocks_behind(own) : 0;
    if (count > 0 && count <= kMostOfWarp) add_alone(own, count);
    if (lane_id() == 0) memory.count[warp()] = count > kMostOfWarp ? count : 0;
    __syncthreads();
    for (int w = 0; w < kOrderedWarps; ++w) {
      if (memory.count[w] == 0) continue;
      add_together(int64_t{blockIdx.x} * kOrderedWarps + w, memory.count[w]);
    }
  }
};

template <int kLanes, ValueType kType>
__global__ void __launch_bounds__(kOrderedSpan)
    ordered_runs_kernel(__grid_constant__ OrderedSumsCall const call) {
  using Runs = OrderedRuns<kLanes, kType>;
  __shared__ typename Runs::Memory memory;
  Runs{call, memory}.run(ceil_div(call.feature.num_ids, kOrderedSpan));
}

// ---- host ---------------------------------------------------------------------------------------

inline int64_t ordered_partial_rows(int64_t items) { return 2 * ceil_div(items, kOrderedSpan); }

// Returns whether the kernels here make the sums of a call. `partial_rows` of its dim are there.
inline bool has_ordered_sums(ReduceArgs const& args, int64_t partial_rows) {
  auto const& feature = args.features[0];
  auto const& sums = args.sums[0];
  auto const dim = args.tables[0].dim;
  return args.order.slots != nullptr && args.num_tables == 1 && args.num_features == 1 &&
         args.counts_step == 0 && sums.unique_slots == nullptr && feature.num_ids > 0 &&
         feature.num_bags > 0 && feature.num_bags <= UINT32_MAX && feature.places.group == 0 &&
         sums.places.group == 0 && feature.row_type == ValueType::kFloat32 &&
         sums.row_type != ValueType::kFloat16 && dim > 16 && dim <= kColumnsOfWarp &&
         moves_vectors(feature.rows, dim) && moves_vectors(sums.rows, dim) &&
         ordered_partial_rows(feature.num_ids) <= partial_rows;
}

template <int kLanes, ValueType kType>
cudaError_t launch_ordered_sums(OrderedSumsCall const& call, cudaStream_t stream) {
  auto const blocks = ceil_div(call.feature.num_ids, kOrderedSpan);
  DYNEMB_CUDA_TRY(
      launch(ordered_sums_kernel<kLanes, kType>, blocks, stream, call, 0, kOrderedSpan));
  if (blocks == 1) return cudaSuccess;
  return launch(ordered_runs_kernel<kLanes, kType>, ceil_div(blocks, kOrderedWarps), stream, call,
                0, kOrderedSpan);
}

// The call has these sums.
inline cudaError_t ordered_sums(ReduceArgs const& args, float* partial, cudaStream_t stream) {
  auto const& table = args.tables[0];
  auto const& sums = args.sums[0];
  OrderedSumsCall const call{args.order, args.features[0], slot_limit(table, args.features[0]),
                             table.dim,  sums.rows,        partial};
  auto const with_type = [&](auto lanes) {
    if (sums.row_type == ValueType::kFloat32) {
      return launch_ordered_sums<lanes(), ValueType::kFloat32>(call, stream);
    }
    return launch_ordered_sums<lanes(), ValueType::kBFloat16>(call, stream);
  };
  if (table.dim <= 32) return with_type(std::integral_constant<int, 8>{});
  if (table.dim <= 64) return with_type(std::integral_constant<int, 16>{});
  return with_type(std::integral_constant<int, 32>{});
}

}  // namespace dynemb::cuda
