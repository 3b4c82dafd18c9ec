// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/suffix_gradients.cuh: the gradients of suffixes: a block has a share of the
// prefixes, and sums for some suffixes in shared memory. All warps walk through the prefixes of the
// block together. Each owns some suffixes and adds the rows of these alone, so no two warps ever
// add to one sum. What the next steps need is copied into shared memory ahead of them. At the end
// the sums of all shares are added in order.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cuda/grid/async_copy.cuh"
#include "cuda/grid/host.h"
#include "cuda/tensor_train/prefix_walk.cuh"
#include "cuda/tensor_train/row_tiles.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

constexpr int kOwners = 16;  // warps of a block
constexpr int kOwnerThreads = 32 * kOwners;
constexpr int64_t kBlocksOfSums = 132;  // the same on every GPU: they decide on bits

// What the blocks of a share divide: suffixes, and where one is too large, its ranks and columns.
struct SumParts {
  int32_t suffixes, ranks, columns;  // of a part
  int32_t of_suffixes, of_ranks, of_columns;
  int32_t shares;

  __host__ __device__ int32_t count() const { return of_suffixes * of_ranks * of_columns; }
};

struct SuffixSumsCall {
  PairShape shape;
  float const* prefix;
  float const* d_rows;
  SumParts parts;
  int32_t staged_floats;  // of shared memory
  float* sums;            // [shares, num_suffixes, k, n]
  float* d_suffix;        // [num_suffixes, k, n]
};

// The sums of a block. Number 2 * t + h of the ranks of a lane, which are consecutive, is at row
// lane / 4 + 8 * h of tile t; sums lie in order of tiles, so that lanes add to all banks.
template <int kRankTiles>
class BlockSums {
 public:
  static constexpr int kRanks = 16 * kRankTiles;
  static constexpr int kOfLane = 2 * kRankTiles;

  __device__ BlockSums(SuffixSumsCall const& call, float* memory)
      : call_(call), parts_(call.parts), memory_(memory) {
    auto part = static_cast<int32_t>(blockIdx.x) % parts_.count();
    first_suffix_ = part % parts_.of_suffixes * parts_.suffixes;
    part /= parts_.of_suffixes;
    first_rank_ = part % parts_.of_ranks * parts_.ranks;
    first_column_ = part / parts_.of_ranks * parts_.columns;
    auto const left = call.shape.num_suffixes - first_suffix_;
    suffixes_ = static_cast<int32_t>(left < parts_.suffixes ? left : parts_.suffixes);
    ranks_ = min(parts_.ranks, call.shape.k - first_rank_);
    columns_ = min(parts_.columns, call.shape.n - first_column_);
    padded_ = (ranks_ + kRanks - 1) / kRanks * kRanks;
  }

  __device__ int32_t first_rank() const { return first_rank_; }
  __device__ int32_t ranks() const { return ranks_; }
  __device__ int32_t first_column() const { return first_column_; }
  __device__ int32_t columns() const { return columns_; }

  // A suffix as the sums number it, if this warp owns it; else -1.
  __device__ __forceinline__ int32_t owned(int32_t suffix) const {
    auto const own = static_cast<uint32_t>(suffix) - static_cast<uint32_t>(first_suffix_);
    auto const mine = own < static_cast<uint32_t>(suffixes_) && own % kOwners == threadIdx.x / 32;
    return mine ? static_cast<int32_t>(own) : -1;
  }

  // Where the first rank of a lane's tiles, from `rank` of the sums on, has its sum.
  __device__ __forceinline__ float* at(int32_t own, int32_t rank, int32_t column) const {
    return memory_ + (own * padded_ + rank + lane_id() / 4) * columns_ + column;
  }

  __device__ void clear() const {
    auto const count = suffixes_ * padded_ * columns_;
    for (auto i = static_cast<int32_t>(threadIdx.x); i < count; i += kOwnerThreads) memory_[i] = 0;
  }

  __device__ void write(int64_t share) const {
    auto const& shape = call_.shape;
    auto* const out = call_.sums + share * shape.num_suffixes * shape.k * shape.n;
    auto const row_size = ranks_ * columns_;
    for (auto i = static_cast<int32_t>(threadIdx.x); i < suffixes_ * row_size; i += kOwnerThreads) {
      auto const own = i / row_size, rank = i % row_size / columns_, column = i % columns_;
      auto const chunk = rank / kRanks * kRanks, in_chunk = rank % kRanks;
      auto const place = chunk + in_chunk % kOfLane * 8 + in_chunk / kOfLane;
      auto const row = (int64_t{first_suffix_} + own) * shape.k + first_rank_ + rank;
      out[row * shape.n + first_column_ + column] =
          memory_[(int64_t{own} * padded_ + place) * columns_ + column];
    }
  }

 private:
  SuffixSumsCall const& call_;
  SumParts const& parts_;
  float* memory_;
  int32_t first_suffix_, first_rank_, first_column_;
  int32_t suffixes_, ranks_, columns_, padded_;
};

// Of 16 rows of a prefix the ranks of a lane. Number [q][r] is of row lane % 4 + 4 * q.
template <int kRankTiles>
struct LanePrefix {
  static constexpr int kOfLane = 2 * kRankTiles;
  float numbers[4][kOfLane];

  // `rows` are where the lane's first rank of each row is, or null; `ranks` are left.
  __device__ __forceinline__ LanePrefix(float const* const (&rows)[4], int32_t ranks,
                                        bool vectors) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      if (kOfLane % 4 == 0 && vectors) {
#pragma unroll
        for (int r = 0; r + 3 < kOfLane; r += 4) {
          auto const exists = rows[q] != nullptr && r < ranks;
          auto const four = exists ? *reinterpret_cast<float4 const*>(rows[q] + r) : float4{};
          numbers[q][r] = four.x;
          numbers[q][r + 1] = four.y;
          numbers[q][r + 2] = four.z;
          numbers[q][r + 3] = four.w;
        }
      } else {
#pragma unroll
        for (int r = 0; r < kOfLane; ++r) {
          numbers[q][r] = rows[q] != nullptr && r < ranks ? rows[q][r] : 0.0f;
        }
      }
    }
  }

  template <bool kExact>
  __device__ __forceinline__ LeftTile<kExact> tile(int t, int step) const {
    LeftTile<kExact> tile;
#pragma unroll
    for (int i = 0; i < 4; ++i) tile.set(i, numbers[2 * step + i / 2][2 * t + i % 2]);
    return tile;
  }
};

// A prefix and up to 32 of its rows, in shared memory or where they are.
struct StepRows {
  int32_t suffix;  // of row `lane`, or -1
  float const* prefix;
  int64_t segment_stride;  // of a prefix's segments
  int32_t row_stride;      // of the rows of a segment
  float const* d_rows;
};

// Copies of the next steps, which the threads of a block begin together.
class StagedSteps {
 public:
  static constexpr int kStages = 4;
  static constexpr int kPad = 8;  // so that four rows of a prefix lie in different banks

  // What a stage holds: suffixes, how many there are, the prefix, gradients of rows.
  struct Layout {
    int32_t prefix, d_rows, floats;  // where they begin, and where the next stage does
  };
  __host__ __device__ static Layout layout(PairShape const& shape) {
    constexpr int32_t kWords = 32 + 4;
    auto const d_rows = kWords + shape.m * (shape.k + kPad);
    return {kWords, d_rows, d_rows + 32 * shape.m * shape.n};
  }

  __device__ StagedSteps(SuffixSumsCall const& call, float* memory, int64_t first, int64_t last)
      : call_(call), layout_(layout(call.shape)), memory_(memory), walk_(call.shape, first, last) {
    for (int stage = 0; stage < kStages - 1; ++stage) begin();
  }

  // False: there are no more steps. All threads of the block are here.
  __device__ __forceinline__ bool next(StepRows& step) {
    wait_for_copies_before<kStages - 2>();
    __syncthreads();  // the copies of all threads are there, and the stage to fill next is read
    begin();
    auto const* const stage = memory_ + now_ % kStages * layout_.floats;
    ++now_;
    auto const* const words = reinterpret_cast<int32_t const*>(stage);
    auto const count = words[32];
    step.suffix = lane_id() < count ? words[lane_id()] : -1;
    auto const& shape = call_.shape;
    step.prefix = stage + layout_.prefix;
    step.row_stride = shape.k + kPad;
    step.segment_stride = int64_t{shape.inner_m} * step.row_stride;
    step.d_rows = stage + layout_.d_rows;
    return count > 0;
  }

 private:
  __device__ __forceinline__ void begin() {
    auto const& shape = call_.shape;
    auto const rows = walk_.next();
    auto* const stage = memory_ + begun_ % kStages * layout_.floats;
    ++begun_;
    auto const thread = static_cast<int32_t>(threadIdx.x);
    auto* const words = reinterpret_cast<int32_t*>(stage);
    if (thread == 0) words[32] = rows.count;
    if (thread < rows.count)
      begin_copy_of_word(words + thread, shape.of_suffix + rows.first + thread);
    if (rows.count > 0) {
      auto const row_size = shape.m * shape.n;
      auto const* const d_rows = call_.d_rows + int64_t{rows.first} * row_size;
      for (auto i = thread * 4; i < rows.count * row_size; i += kOwnerThreads * 4) {
        begin_copy(vector(stage + layout_.d_rows + i), vector(d_rows + i));
      }
      auto const* const prefix = call_.prefix + prefix_offset(shape, rows.prefix);
      for (auto i = (kOwnerThreads - 1 - thread) * 4; i < shape.m * shape.k;
           i += kOwnerThreads * 4) {
        auto const m = i / shape.k, rank = i - m * shape.k;
        begin_copy(vector(stage + layout_.prefix + m * (shape.k + kPad) + rank),
                   vector(prefix + prefix_row_offset(shape, m) + rank));
      }
    }
    end_copies();
  }

  __device__ static uint4* vector(float* at) { return reinterpret_cast<uint4*>(at); }
  __device__ static uint4 const* vector(float const* at) {
    return reinterpret_cast<uint4 const*>(at);
  }

  SuffixSumsCall const& call_;
  Layout layout_;
  float* memory_;
  PrefixWalk walk_;
  int32_t begun_ = 0, now_ = 0;
};

// Steps whose rows are read where they are, for rows that do not fit.
class DirectSteps {
 public:
  __device__ DirectSteps(SuffixSumsCall const& call, float* /*memory*/, int64_t first, int64_t last)
      : call_(call), walk_(call.shape, first, last) {}

  __device__ __forceinline__ bool next(StepRows& step) {
    auto const& shape = call_.shape;
    auto const rows = walk_.next();
    if (rows.count == 0) return false;
    step.suffix = lane_id() < rows.count ? shape.of_suffix[rows.first + lane_id()] : -1;
    step.prefix = call_.prefix + prefix_offset(shape, rows.prefix);
    step.row_stride = shape.k;
    step.segment_stride = shape.inner_prefixes * shape.inner_m * shape.k;
    step.d_rows = call_.d_rows + int64_t{rows.first} * shape.m * shape.n;
    return true;
  }

 private:
  SuffixSumsCall const& call_;
  PrefixWalk walk_;
};

// Adds the rows of a step that belong to suffixes of one warp, for 16 rows of the prefix and some
// ranks.
template <int kRankTiles, bool kExact>
class OwnedRows {
 public:
  __device__ __forceinline__ OwnedRows(SuffixSumsCall const& call,
                                       BlockSums<kRankTiles> const& sums, int32_t m0, int32_t rank0)
      : shape_(call.shape), sums_(sums), tiles_(call.shape.n), rank0_(rank0) {
    pairs_ = shape_.n % 2 == 0;
    vectors_ = shape_.k % 4 == 0;
    m_ = m0 + lane_id() % 4;
    auto const rank = rank0 + lane_id() / 4 * (2 * kRankTiles);
    rank_ = sums.first_rank() + rank;
    ranks_ = sums.ranks() - rank;
    gradient_ = tiles_.column(lane_id() / 4);
    added_[0] = tiles_.column(sum_column(0));
    added_[1] = tiles_.column(sum_column(1));
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      auto const m = m_ + 4 * q;
      segment_[q] = m < shape_.m ? m / shape_.inner_m : -1;
    }
  }

  // All lanes are here.
  __device__ __forceinline__ void add(StepRows const& step) const {
    auto const own = sums_.owned(step.suffix);
    auto lanes = __ballot_sync(kFullWarp, own >= 0);
    if (lanes == 0) return;
    float const* rows[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      auto const in_segment = m_ + 4 * q - segment_[q] * shape_.inner_m;
      auto const* const row =
          step.prefix + segment_[q] * step.segment_stride + in_segment * step.row_stride + rank_;
      rows[q] = segment_[q] >= 0 ? row : nullptr;
    }
    LanePrefix<kRankTiles> const prefix(rows, ranks_, vectors_);
    while (lanes != 0) {
      for (int32_t column = 0; column < sums_.columns(); column += kTileColumns) {
        add_tile(step, prefix, own, lanes, column);
      }
      lanes = tiles_.next(lanes);
    }
  }

 private:
  __device__ __forceinline__ void add_tile(StepRows const& step,
                                           LanePrefix<kRankTiles> const& prefix, int32_t own,
                                           unsigned lanes, int32_t column) const {
    RightTile<kExact> right[2];
    load_gradients(step, lanes, column, right);
    float sums[kRankTiles][4] = {};
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int t = 0; t < kRankTiles; ++t) {
        add_product<kExact>(sums[t], prefix.template tile<kExact>(t, s), right[s]);
      }
    }
    auto const stride = 8 * sums_.columns();
    if (pairs_) {
      auto* const to = reinterpret_cast<float2*>(place(own, lanes, column, added_[0]));
      if (to != nullptr) add_pairs(to, stride / 2, sums);
    } else {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        auto* const to = place(own, lanes, column, added_[c]);
        if (to == nullptr) continue;
#pragma unroll
        for (int r = 0; r < 2 * kRankTiles; ++r) to[r * stride] += sums[r / 2][r % 2 * 2 + c];
      }
    }
    __syncwarp();  // the next tile may have the same suffix
  }

  // Of the column lane / 4 of a tile, the rows lane % 4 + 4 * q.
  __device__ __forceinline__ void load_gradients(StepRows const& step, unsigned lanes,
                                                 int32_t column,
                                                 RightTile<kExact> (&right)[2]) const {
    auto const lane = tiles_.lane_of(lanes, gradient_);
    auto const n = column + gradient_.n;
    auto const exists = lane >= 0 && n < sums_.columns();
    auto const* const from =
        step.d_rows + (lane * shape_.m + m_) * shape_.n + sums_.first_column() + n;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      right[q / 2].set(q % 2, exists && segment_[q] >= 0 ? from[4 * q * shape_.n] : 0.0f);
    }
  }

  __device__ __forceinline__ void add_pairs(float2* to, int32_t stride,
                                            float const (&sums)[kRankTiles][4]) const {
    float2 old[2 * kRankTiles];
#pragma unroll
    for (int r = 0; r < 2 * kRankTiles; ++r) old[r] = to[r * stride];
#pragma unroll
    for (int r = 0; r < 2 * kRankTiles; ++r) {
      auto const* const added = sums[r / 2] + r % 2 * 2;
      to[r * stride] = {old[r].x + added[0], old[r].y + added[1]};
    }
  }

  // Where a column of a tile is summed.
  __device__ __forceinline__ float* place(int32_t own, unsigned lanes, int32_t column,
                                          ColumnOfTile const& of) const {
    auto const lane = tiles_.lane_of(lanes, of);
    auto const suffix = __shfl_sync(kFullWarp, own, lane < 0 ? 0 : lane);
    column += of.n;
    if (lane < 0 || column >= sums_.columns()) return nullptr;
    return sums_.at(suffix, rank0_, column);
  }

  PairShape const& shape_;
  BlockSums<kRankTiles> const& sums_;
  RowTiles tiles_;
  int32_t segment_[4];  // of the rows of a prefix that a lane has; -1: there is none
  int32_t rank0_, rank_, ranks_;
  int32_t m_;
  bool pairs_;    // two columns of a lane are of one row
  bool vectors_;  // four ranks may be read together
  ColumnOfTile gradient_, added_[2];
};

template <int kRankTiles, bool kExact, class Steps>
__global__ void __launch_bounds__(kOwnerThreads, 1)
    suffix_sums_kernel(__grid_constant__ SuffixSumsCall const call) {
#ifdef __CUDACC__
  extern __shared__ uint4 memory[];
#else
  auto* const memory = memory_of_block();
#endif
  auto* const staged = reinterpret_cast<float*>(memory);
  BlockSums<kRankTiles> const sums(call, staged + call.staged_floats);
  sums.clear();
  auto const share = static_cast<int64_t>(blockIdx.x) / call.parts.count();
  auto const shares = int64_t{call.parts.shares};
  auto const first = first_prefix_of_share_by_warp(call.shape, share, shares);
  auto const last = first_prefix_of_share_by_warp(call.shape, share + 1, shares);
  for (int32_t m0 = 0; m0 < call.shape.m; m0 += kTileRows) {
    for (int32_t rank = 0; rank < sums.ranks(); rank += BlockSums<kRankTiles>::kRanks) {
      __syncthreads();  // stages of the pass before are read
      OwnedRows<kRankTiles, kExact> const rows(call, sums, m0, rank);
      Steps steps(call, staged, first, last);
      for (StepRows step; steps.next(step);) rows.add(step);
    }
  }
  __syncthreads();
  sums.write(share);
}

__global__ void __launch_bounds__(kThreads)
    sum_shares_kernel(__grid_constant__ SuffixSumsCall const call) {
  auto const size = call.shape.num_suffixes * call.shape.k * call.shape.n;
  auto const step = int64_t{gridDim.x} * kThreads;
  for (auto i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += step) {
    float sum = 0;
#pragma unroll 8
    for (int32_t share = 0; share < call.parts.shares; ++share) sum += call.sums[share * size + i];
    call.d_suffix[i] = sum;
  }
}

inline int32_t rank_tiles_of(int32_t k) { return k <= 16 ? 1 : k <= 32 ? 2 : 4; }

// Parts whose sums have `room` bytes.
inline SumParts parts_of_sums(PairShape const& shape, int64_t room) {
  auto const numbers = room / static_cast<int64_t>(sizeof(float));
  auto const tile = int64_t{16} * rank_tiles_of(shape.k);
  auto ranks = ceil_div(shape.k, tile) * tile;
  int64_t columns = shape.n;
  if (ranks * columns > numbers) ranks = tile;
  if (ranks * columns > numbers) columns = numbers / ranks / kTileColumns * kTileColumns;
  auto const most = std::min(numbers / (ranks * columns), shape.num_suffixes);
  auto const of_suffixes = ceil_div(shape.num_suffixes, most);
  SumParts parts{};
  parts.suffixes = static_cast<int32_t>(ceil_div(shape.num_suffixes, of_suffixes));
  parts.ranks = static_cast<int32_t>(std::min<int64_t>(ranks, shape.k));
  parts.columns = static_cast<int32_t>(columns);
  parts.of_suffixes = static_cast<int32_t>(of_suffixes);
  parts.of_ranks = static_cast<int32_t>(ceil_div(shape.k, ranks));
  parts.of_columns = static_cast<int32_t>(ceil_div(shape.n, columns));
  constexpr int64_t kLeastRows = 64;  // of a share
  auto const useful = ceil_div(shape.num_rows, kLeastRows);
  auto const shares = std::min(useful, kBlocksOfSums / parts.count());
  parts.shares = static_cast<int32_t>(std::max<int64_t>(1, shares));
  return parts;
}

constexpr int64_t kMostRoom = 200 * 1024;  // as much as any GPU has

inline float* take_sums(PairShape const& shape, Scratch& scratch) {
  // Parts for less room are more, and their shares fewer.
  auto const shares = parts_of_sums(shape, kMostRoom).shares;
  return scratch.take<float>(shares * shape.num_suffixes * shape.k * shape.n);
}

// Bytes of all stages; 0: they would take more than half of a block's memory, or rows are not made
// of whole vectors.
inline int64_t staged_bytes(PairShape const& shape, int64_t most) {
  auto const row_size = int64_t{shape.m} * shape.n, prefix_size = int64_t{shape.m} * shape.k;
  if (row_size % 4 != 0 || shape.k % 4 != 0 || row_size + prefix_size > most) return 0;
  auto const floats = StagedSteps::layout(shape).floats * int64_t{StagedSteps::kStages};
  auto const bytes = floats * static_cast<int64_t>(sizeof(float));
  return bytes <= most / 2 ? bytes : 0;
}

template <int kRankTiles, bool kExact, class Steps>
cudaError_t launch_suffix_sums(SuffixSumsCall const& call, cudaStream_t stream) {
  auto const& parts = call.parts;
  auto const padded = ceil_div(parts.ranks, 16 * kRankTiles) * 16 * kRankTiles;
  auto const floats = parts.suffixes * padded * parts.columns + call.staged_floats;
  auto const bytes = sizeof(float) * static_cast<size_t>(floats);
  auto* const kernel = suffix_sums_kernel<kRankTiles, kExact, Steps>;
  DYNEMB_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(bytes)));
  auto const blocks = int64_t{parts.count()} * parts.shares;
  return launch(kernel, blocks, stream, call, bytes, kOwnerThreads);
}

inline cudaError_t suffix_gradients(PairGradientsArgs const& args, void* memory,
                                    cudaStream_t stream) {
  auto const& shape = args.shape;
  int device = 0, most = 0;
  DYNEMB_CUDA_TRY(cudaGetDevice(&device));
  DYNEMB_CUDA_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  constexpr int64_t kOfKernel = 1024;
  auto const staged = staged_bytes(shape, most - kOfKernel);
  auto const room = std::min<int64_t>(kMostRoom, most - kOfKernel - staged);
  Scratch scratch(memory);
  SuffixSumsCall const call{shape,
                            args.prefix,
                            args.d_rows,
                            parts_of_sums(shape, room),
                            static_cast<int32_t>(staged / int64_t{sizeof(float)}),
                            take_sums(shape, scratch),
                            args.d_suffix};
  auto const with = [&](auto tiles, auto exact) {
    return staged > 0 ? launch_suffix_sums<tiles(), exact(), StagedSteps>(call, stream)
                      : launch_suffix_sums<tiles(), exact(), DirectSteps>(call, stream);
  };
  auto const with_tiles = [&](auto tiles) {
    return shape.exact != 0 ? with(tiles, std::true_type{}) : with(tiles, std::false_type{});
  };
  auto const launched = [&] {
    if (shape.k <= 16) return with_tiles(std::integral_constant<int, 1>{});
    if (shape.k <= 32) return with_tiles(std::integral_constant<int, 2>{});
    return with_tiles(std::integral_constant<int, 4>{});
  }();
  DYNEMB_CUDA_TRY(launched);
  auto const size = shape.num_suffixes * shape.k * shape.n;
  return launch(sum_shares_kernel, persistent_blocks(ceil_div(size, kThreads), 8), stream, call);
}

}  // namespace dynemb::cuda
