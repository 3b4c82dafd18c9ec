// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/pair_gradients.cu: gradients of both factors of rows, without atomics.
//
// Of a prefix: a warp sums over its rows in registers.
// Of suffixes: a block takes a share of the prefixes and 16 ranks, and sums in memory of its own,
// shared memory where that is large enough. Rows of one prefix have different suffixes, so its
// warps add to different places; between two prefixes they wait. Then the shares are added in
// order.
#include <algorithm>
#include <type_traits>

#include "cuda/grid/host.h"
#include "cuda/launch.h"
#include "cuda/tensor_train/pair_columns.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {
namespace {

constexpr int kRanksOfBlock = kTileRows;

// ---- prefixes -----------------------------------------------------------------------------------

template <int kSteps, bool kExact>
__device__ __forceinline__ void add_columns(PairGradientsArgs const& args,
                                            PairColumns const& columns, int64_t first, int32_t m0,
                                            int32_t k0, float (&sums)[kSteps][4]) {
  auto const& shape = args.shape;
  PairColumn const places[2] = {columns.at(first + left_column(0)),
                                columns.at(first + left_column(2))};
  LeftTile<kExact> gradients;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    auto const& place = places[i / 2];
    auto const m = m0 + left_row(i);
    auto const at = (place.row * shape.m + m) * shape.n + place.n;
    gradients.set(i, place.exists && m < shape.m ? args.d_rows[at] : 0.0f);
  }
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    RightTile<kExact> suffixes;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      auto const& place = places[i];
      auto const k = k0 + s * 8 + right_column();
      auto const at = (int64_t{place.suffix} * shape.k + k) * shape.n + place.n;
      suffixes.set(i, place.exists && k < shape.k ? args.suffix[at] : 0.0f);
    }
    add_product<kExact>(sums[s], gradients, suffixes);
  }
}

template <int kSteps, bool kExact>
__global__ void __launch_bounds__(kThreads)
    prefix_gradients_kernel(__grid_constant__ PairGradientsArgs const args) {
  auto const& shape = args.shape;
  auto const warps = int64_t{gridDim.x} * kWarpsPerBlock;
  for (auto prefix = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
       prefix < shape.num_prefixes; prefix += warps) {
    PairColumns const columns(shape, prefix);
    auto* const out = args.d_prefix + prefix * shape.m * shape.k;
    for (int32_t m0 = 0; m0 < shape.m; m0 += kTileRows) {
      for (int32_t k0 = 0; k0 < shape.k; k0 += kSteps * 8) {
        float sums[kSteps][4] = {};
        for (int64_t first = 0; first < columns.count(); first += kTileColumns) {
          add_columns<kSteps, kExact>(args, columns, first, m0, k0, sums);
        }
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            auto const m = m0 + sum_row(i), k = k0 + s * 8 + sum_column(i);
            if (m < shape.m && k < shape.k) out[int64_t{m} * shape.k + k] = sums[s][i];
          }
        }
      }
    }
  }
}

// ---- suffixes -----------------------------------------------------------------------------------

struct SuffixCall {
  PairGradientsArgs args;
  float* shares;  // [num_shares, num_suffixes, k, n]
  int32_t num_shares;
  int32_t num_slabs;  // of 16 ranks
  int32_t in_shared;  // 1: a block's sums are in shared memory
};

// Where a block sums: [num_suffixes, ranks, n] in shared memory, or its slab of the share itself.
class SuffixSums {
 public:
  __device__ SuffixSums(SuffixCall const& call, float* shared, int32_t share, int32_t slab)
      : shape_(call.args.shape),
        share_(call.shares + share * shape_.num_suffixes * shape_.k * shape_.n),
        first_rank_(slab * kRanksOfBlock),
        ranks_(min(kRanksOfBlock, shape_.k - first_rank_)),
        shared_(call.in_shared != 0 ? shared : nullptr) {}

  __device__ __forceinline__ float* at(int32_t suffix, int32_t rank, int32_t n) const {
    if (shared_ != nullptr) {
      return shared_ + (int64_t{suffix} * kRanksOfBlock + rank) * shape_.n + n;
    }
    return share_ + (int64_t{suffix} * shape_.k + first_rank_ + rank) * shape_.n + n;
  }

  __device__ int32_t ranks() const { return ranks_; }
  __device__ int32_t first_rank() const { return first_rank_; }

  __device__ void clear() const {
    for_each([&](int32_t suffix, int32_t rank, int32_t n) { *at(suffix, rank, n) = 0.0f; });
  }

  __device__ void finish() const {
    if (shared_ == nullptr) return;
    for_each([&](int32_t suffix, int32_t rank, int32_t n) {
      share_[(int64_t{suffix} * shape_.k + first_rank_ + rank) * shape_.n + n] =
          *at(suffix, rank, n);
    });
  }

 private:
  template <class Body>
  __device__ void for_each(Body const& body) const {
    auto const of_suffix = static_cast<uint32_t>(ranks_ * shape_.n);
    auto const all = shape_.num_suffixes * of_suffix;
    for (int64_t i = threadIdx.x; i < all; i += blockDim.x) {
      auto const suffix = static_cast<int32_t>(i / of_suffix);
      auto const rest = static_cast<uint32_t>(i - int64_t{suffix} * of_suffix);
      auto const rank = rest / static_cast<uint32_t>(shape_.n);
      body(suffix, static_cast<int32_t>(rank), static_cast<int32_t>(rest - rank * shape_.n));
    }
  }

  PairShape const& shape_;
  float* share_;
  int32_t first_rank_;
  int32_t ranks_;
  float* shared_;
};

// Eight columns of one prefix: (16 ranks of prefix, transposed) @ gradients of rows.
template <bool kExact>
__device__ __forceinline__ void multiply(PairGradientsArgs const& args, PairColumn const& column,
                                         float const* prefix, int32_t first_rank,
                                         float (&sums)[4]) {
  auto const& shape = args.shape;
  auto const* const gradients = args.d_rows + column.row * shape.m * shape.n + column.n;
  for (int32_t m0 = 0; m0 < shape.m; m0 += 8) {
    LeftTile<kExact> left;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      auto const k = first_rank + left_row(i), m = m0 + left_column(i);
      auto const exists = k < shape.k && m < shape.m;
      left.set(i, exists ? prefix[int64_t{m} * shape.k + k] : 0.0f);
    }
    RightTile<kExact> right;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      auto const m = m0 + right_row(i);
      auto const exists = column.exists && m < shape.m;
      right.set(i, exists ? gradients[int64_t{m} * shape.n] : 0.0f);
    }
    add_product<kExact>(sums, left, right);
  }
}

__device__ __forceinline__ void add_to_suffixes(PairColumns const& columns, int64_t first,
                                                SuffixSums const& to, float const (&sums)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    auto const place = columns.at(first + sum_column(half));
    if (!place.exists) continue;
#pragma unroll
    for (int i = half; i < 4; i += 2) {
      if (sum_row(i) < to.ranks()) *to.at(place.suffix, sum_row(i), place.n) += sums[i];
    }
  }
}

template <bool kExact>
__global__ void __launch_bounds__(kThreads)
    suffix_gradients_kernel(__grid_constant__ SuffixCall const call) {
  extern __shared__ float shared[];
  auto const& args = call.args;
  auto const& shape = args.shape;
  auto const slab = static_cast<int32_t>(blockIdx.x) % call.num_slabs;
  auto const share = static_cast<int32_t>(blockIdx.x) / call.num_slabs;
  SuffixSums const to(call, shared, share, slab);
  to.clear();
  auto const end = first_prefix_of_share(shape, share + 1, call.num_shares);
  auto const step = int64_t{kWarpsPerBlock} * kTileColumns;
  for (auto prefix = first_prefix_of_share(shape, share, call.num_shares); prefix < end; ++prefix) {
    PairColumns const columns(shape, prefix);
    auto const* const factor = args.prefix + prefix * shape.m * shape.k;
    auto first = int64_t{threadIdx.x / 32} * kTileColumns;
    // The first product does not wait for the sums of the prefix before.
    float sums[4] = {};
    if (first < columns.count()) {
      multiply<kExact>(args, columns.at(first + right_column()), factor, to.first_rank(), sums);
    }
    __syncthreads();
    while (first < columns.count()) {
      add_to_suffixes(columns, first, to, sums);
      first += step;
      if (first >= columns.count()) break;
      for (auto& sum : sums) sum = 0.0f;
      multiply<kExact>(args, columns.at(first + right_column()), factor, to.first_rank(), sums);
    }
  }
  __syncthreads();
  to.finish();
}

__global__ void __launch_bounds__(kThreads)
    sum_shares_kernel(__grid_constant__ SuffixCall const call) {
  auto const& shape = call.args.shape;
  auto const all = shape.num_suffixes * shape.k * shape.n;
  auto const stride = int64_t{gridDim.x} * blockDim.x;
  for (auto i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all; i += stride) {
    float sum = 0;
    for (int32_t share = 0; share < call.num_shares; ++share) sum += call.shares[share * all + i];
    call.args.d_suffix[i] = sum;
  }
}

// As many as fit into 64 MB, at most 128: the same on every GPU, so sums have the same bits.
int32_t shares_of(PairShape const& shape) {
  constexpr int64_t kMostBytes = int64_t{1} << 26;
  auto const bytes = 4 * std::max<int64_t>(1, shape.num_suffixes * shape.k * shape.n);
  return static_cast<int32_t>(std::clamp<int64_t>(kMostBytes / bytes, 1, 128));
}

int64_t most_shared_bytes() {
  int device = 0, bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
          cudaSuccess) {
    return 0;
  }
  return bytes;
}

template <bool kExact>
cudaError_t suffix_gradients(SuffixCall const& call, size_t shared_bytes, cudaStream_t stream) {
  auto* const kernel = &suffix_gradients_kernel<kExact>;
  DYNEMB_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(shared_bytes)));
  return launch(kernel, int64_t{call.num_shares} * call.num_slabs, stream, call, shared_bytes);
}

}  // namespace

size_t pair_gradients_scratch_bytes(PairGradientsArgs const& args) {
  auto const& shape = args.shape;
  Scratch scratch(nullptr);
  scratch.take<float>(shares_of(shape) * shape.num_suffixes * shape.k * shape.n);
  return scratch.used();
}

cudaError_t pair_gradients(PairGradientsArgs const& args, void* scratch, cudaStream_t stream) {
  auto const& shape = args.shape;
  if (shape.num_prefixes > 0) {
    constexpr int64_t kMostBlocks = 1 << 20;
    auto const blocks = std::min(kMostBlocks, ceil_div(shape.num_prefixes, kWarpsPerBlock));
    DYNEMB_CUDA_TRY(with_steps(shape, [&](auto steps, auto exact) {
      return launch(prefix_gradients_kernel<steps(), exact()>, blocks, stream, args);
    }));
  }
  if (shape.num_suffixes == 0) return cudaSuccess;
  SuffixCall call{args, static_cast<float*>(scratch), shares_of(shape), 0, 0};
  call.num_slabs = static_cast<int32_t>(ceil_div(shape.k, kRanksOfBlock));
  auto const needed = 4 * shape.num_suffixes * kRanksOfBlock * shape.n;
  call.in_shared = needed <= most_shared_bytes() ? 1 : 0;
  auto const shared_bytes = call.in_shared != 0 ? static_cast<size_t>(needed) : 0;
  DYNEMB_CUDA_TRY(shape.exact != 0 ? suffix_gradients<true>(call, shared_bytes, stream)
                                   : suffix_gradients<false>(call, shared_bytes, stream));
  auto const numbers = shape.num_suffixes * shape.k * shape.n;
  auto const blocks = std::min<int64_t>(4096, ceil_div(numbers, kThreads));
  return launch(sum_shares_kernel, blocks, stream, call);
}

}  // namespace dynemb::cuda
