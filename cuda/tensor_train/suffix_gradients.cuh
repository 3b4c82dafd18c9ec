// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/suffix_gradients.cuh: the gradients of suffixes: summed in registers
// (cuda/tensor_train/suffix_sums.cuh) where sizes allow it. Else what each row adds is written
// down, and summed by suffix with the kernels that sum the gradients of a table's rows.
#pragma once

#include <algorithm>
#include <memory>

#include "cuda/grid/host.h"
#include "cuda/launch.h"
#include "cuda/tensor_train/products.cuh"
#include "cuda/tensor_train/suffix_sums.cuh"

namespace dynemb::cuda {

constexpr int32_t kMostColumns = 4096;  // of a sum; wider ones are several

// A table of groups for every kMostColumns columns of what rows add.
inline std::unique_ptr<ReduceArgs> sums_of_suffixes(PairShape const& shape, float* added,
                                                    float* d_suffix) {
  auto const width = shape.k * shape.n;
  auto sums = std::make_unique<ReduceArgs>();
  sums->num_tables = static_cast<int32_t>(ceil_div(width, kMostColumns));
  sums->num_features = sums->num_tables;
  for (int32_t t = 0; t < sums->num_tables; ++t) {
    auto const first = t * kMostColumns;
    auto const places = RowPlaces{sums->num_tables > 1 ? 1 : 0, 0, {width}};
    auto& table = sums->tables[t];
    table.dim = std::min(kMostColumns, width - first);
    table.local_buckets = std::max<int64_t>(2, ceil_div(shape.num_suffixes, kBucketCapacity));
    table.num_groups = static_cast<uint32_t>(shape.num_suffixes);
    sums->sums[t] = {nullptr, d_suffix + first, places, shape.num_suffixes, ValueType::kFloat32};
    auto& feature = sums->features[t];
    feature.table = t;
    feature.num_ids = feature.num_bags = shape.num_rows;
    feature.bag_size = 1;
    feature.slots = const_cast<int32_t*>(shape.of_suffix);
    feature.rows = added + first;
    feature.places = places;
  }
  return sums;
}

inline float* take_added(PairShape const& shape, Scratch& scratch) {
  return scratch.take<float>(shape.num_rows * shape.k * shape.n);
}

inline size_t suffix_gradients_scratch_bytes(PairShape const& shape) {
  Scratch scratch(nullptr);
  SumParts const parts(shape);
  if (parts.parts == 0) {
    take_added(shape, scratch);
    return scratch.used() + reduce_scratch_bytes(*sums_of_suffixes(shape, nullptr, nullptr));
  }
  scratch.take<float>(parts.sums(shape));
  scratch.take<RowRange32>(parts.ranges(shape));
  return scratch.used();
}

inline cudaError_t suffix_gradients(PairGradientsOf<float> const& args, void* memory,
                                    cudaStream_t stream) {
  auto const& shape = args.shape;
  SumParts const parts(shape);
  if (parts.parts > 0) return suffix_sums(args, parts, memory, stream);
  Scratch scratch(memory);
  auto* const added = take_added(shape, scratch);
  ProductsCall const call{shape, args.prefix, shape.k, shape.m, args.d_rows, added};
  DYNEMB_CUDA_TRY(launch_products<true>(call, stream));
  auto const bytes = sizeof(float) * size_t(shape.num_suffixes) * size_t(shape.k) * size_t(shape.n);
  DYNEMB_CUDA_TRY(cudaMemsetAsync(args.d_suffix, 0, bytes, stream));
  if (shape.num_rows == 0) return cudaSuccess;
  return reduce(*sums_of_suffixes(shape, added, args.d_suffix), scratch.take<char>(0), stream);
}

}  // namespace dynemb::cuda
