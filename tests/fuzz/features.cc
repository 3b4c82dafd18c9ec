// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/features.h"

#include <algorithm>

namespace dynemb::fuzz {

namespace {

Feature make_feature(Random& random, int64_t num_tables) {
  Feature feature{};
  feature.table = random.below(num_tables);
  feature.pooling = random.below(3);
  feature.weighted = random.one_in(3);
  feature.bag_size = feature.pooling == 0 ? 1 : random.of<int64_t>({0, 0, 1, 3, 40});
  feature.num_ids = batch_size(random);
  if (feature.bag_size > 0) {
    feature.num_bags = feature.num_ids / feature.bag_size;
    feature.num_ids = feature.num_bags * feature.bag_size;
  } else {
    feature.num_bags = random.of<int64_t>({0, 1, random.below(30), feature.num_ids});
    feature.offsets = Array(kS32, {feature.num_bags + 1});
    feature.in_order = !random.one_in(3);
    int64_t next = 0;
    for (int64_t b = 0; b <= feature.num_bags; ++b) {
      auto const offset = feature.in_order ? next : random.hostile();
      feature.offsets.data<int32_t>()[b] = static_cast<int32_t>(offset);
      next = std::min(next + random.below(6), feature.num_ids);
    }
  }
  if (feature.weighted) {
    feature.weights = Array(kF32, {feature.num_ids});
    fill_floats(random, feature.weights);
  }
  return feature;
}

}  // namespace

std::vector<Feature> make_features(Random& random, size_t num_tables) {
  std::vector<Feature> features;
  for (auto count = random.below(5); count > 0; --count) {
    features.push_back(make_feature(random, static_cast<int64_t>(num_tables)));
  }
  return features;
}

void describe(Feature const& feature, std::vector<int64_t>& fields) {
  auto const first = fields.size();
  fields.resize(first + kNumFeatureFields, 0);
  fields[first + kFeatureTable] = feature.table;
  fields[first + kFeaturePooling] = feature.pooling;
  fields[first + kFeatureBagSize] = feature.bag_size;
  fields[first + kFeatureHasWeights] = feature.weighted ? 1 : 0;
  fields[first + kFeatureRows + kRowsArray] = -1;
}

void add_bags(Call& call, Feature const& feature) {
  if (feature.bag_size == 0) call.operands.push_back(feature.offsets);
  if (feature.weighted) call.operands.push_back(feature.weights);
}

Array place_rows(Random& random, int64_t num_rows, int64_t dim, XLA_FFI_DataType dtype,
                 int64_t* fields) {
  if (random.one_in(2)) return Array(dtype, {num_rows, dim});
  auto const group = random.between(1, 9);
  auto const stride = (group * dim + random.below(9) + 7) / 8 * 8;
  auto const offset = random.of<int64_t>({0, 3, 8});
  fields[kRowsArray] = 0;
  fields[kRowsOffset] = offset;
  fields[kRowsGroup] = group;
  fields[kRowsStride] = stride;
  auto const last = num_rows == 0 ? 0 : num_rows - 1;
  auto const end = last / group * stride + (last % group + (num_rows == 0 ? 0 : 1)) * dim;
  return Array(dtype, {offset + end});
}

XLA_FFI_DataType float_type(Random& random) {
  return random.of({kF32, kF32, XLA_FFI_DataType_BF16, XLA_FFI_DataType_F16});
}

}  // namespace dynemb::fuzz
