// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/large_gradients.cuh: whether a sum of gradients could not be finite.
//
// The columns of a wide row are summed some at a time, and the first ones must not be stored if a
// later one is not finite. To sum all of them twice takes as long again. But numbers that are all
// small have a finite sum, and each gradient is read once to see that, whatever the number of ids
// that it is for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/feature_ref.h"
#include "core/table_ref.h"
#include "cuda/grid/call.cuh"
#include "cuda/grid/host.h"
#include "cuda/grid/row_format.cuh"

namespace dynemb::cuda {

// A product of a smaller gradient and a smaller weight is below 2^96, and a batch has fewer than
// 2^30 ids (is_countable). The factor of a mean is at most 1.
constexpr uint32_t kLargeGradientBits = (127 + 64) << 23;
constexpr uint32_t kLargeWeightBits = (127 + 32) << 23;

struct LargeGradientsCall {
  FeatureRef const* features;
  TableRef const* tables;
  int32_t num_features;
  int32_t blocks_of_each;
  uint64_t* found;  // zero; becomes 1
};

__device__ __forceinline__ uint32_t magnitude(float4 const& v) {
  constexpr auto kWithoutSign = 0x7fff'ffffu;
  return max(max(float_bits(v.x) & kWithoutSign, float_bits(v.y) & kWithoutSign),
             max(float_bits(v.z) & kWithoutSign, float_bits(v.w) & kWithoutSign));
}

// Returns the largest magnitude of a lane's columns of every `step`-th row from `first` on.
template <class Format>
__device__ __forceinline__ uint32_t largest_of_rows(Format format, FeatureRef const& feature,
                                                    int32_t dim, int64_t first, int64_t step) {
  constexpr int kInFlight = 4;
  uint32_t largest = 0;
  for (auto base = first; base < feature.num_bags; base += step * kInFlight) {
    for (auto column = lane_id() * 4; column < dim; column += kColumnsOfWarp) {
      RawQuad quad[kInFlight];
#pragma unroll
      for (int r = 0; r < kInFlight; ++r) {
        auto const row = min(base + r * step, feature.num_bags - 1);
        auto const offset = row_offset(feature.places, row, dim);
        quad[r] = load_quad(format, element_pointer(format, feature.rows, offset), column, dim);
      }
#pragma unroll
      for (auto const& each : quad) largest = max(largest, magnitude(to_floats(format, each)));
    }
  }
  return largest;
}

__device__ __forceinline__ uint32_t largest_gradient(FeatureRef const& feature, int32_t dim,
                                                     int64_t first, int64_t step) {
  auto const format = AnyFormat{feature.row_type, moves_vectors(feature.rows, dim)};
  if (format.vector && format.type == ValueType::kFloat32) {
    return largest_of_rows(FloatVectors{}, feature, dim, first, step);
  }
  if (format.vector && format.type == ValueType::kBFloat16) {
    return largest_of_rows(Vectors<ValueType::kBFloat16>{}, feature, dim, first, step);
  }
  return largest_of_rows(format, feature, dim, first, step);
}

__device__ __forceinline__ uint32_t largest_weight(FeatureRef const& feature, int64_t first,
                                                   int64_t step) {
  uint32_t largest = 0;
  if (feature.weights == nullptr) return largest;
  for (auto i = first; i < feature.num_ids; i += step) {
    largest = max(largest, float_bits(feature.weights[i]) & 0x7fff'ffffu);
  }
  return largest;
}

__global__ void __launch_bounds__(kThreads)
    large_gradients_kernel(__grid_constant__ LargeGradientsCall const call) {
  auto const block = static_cast<int32_t>(blockIdx.x);
  auto const& feature = call.features[block / call.blocks_of_each];
  auto const& table = call.tables[feature.table];
  if (table.skips_nonfinite == 0) return;
  auto const thread = int64_t{block % call.blocks_of_each} * kThreads + threadIdx.x;
  auto const threads = int64_t{call.blocks_of_each} * kThreads;
  auto const gradient = largest_gradient(feature, table.dim, thread / 32, threads / 32);
  auto const weight = largest_weight(feature, thread, threads);
  auto const is_large = gradient >= kLargeGradientBits || weight >= kLargeWeightBits;
  if (__any_sync(kFullWarp, is_large) && lane_id() == 0) *call.found = 1;
}

// ---- host ---------------------------------------------------------------------------------------

template <class Args>
cudaError_t find_large_gradients(Args const& args, CallView const& view, uint64_t* found,
                                 cudaStream_t stream) {
  constexpr int64_t kBlocks = 1056;  // eight a multiprocessor of the largest GPU
  int64_t bags = 0;
  for (int32_t f = 0; f < args.num_features; ++f) bags = std::max(bags, args.features[f].num_bags);
  auto const most = std::max<int64_t>(1, kBlocks / std::max(1, args.num_features));
  auto const of_each = std::clamp<int64_t>(ceil_div(bags, kWarpsPerBlock), 1, most);
  LargeGradientsCall const call{view.features, view.tables, args.num_features,
                                static_cast<int32_t>(of_each), found};
  return launch(large_gradients_kernel, of_each * args.num_features, stream, call);
}

}  // namespace dynemb::cuda
