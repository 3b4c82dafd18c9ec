// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/types.h: each table has gradients of one type, so no loop over them branches on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "core/feature_ref.h"
#include "core/table_ref.h"
#include "core/value_type.h"
#include "cpu/loops/buffer.h"

namespace dynemb::cpu {

// The features of a call as they are, but for those of a table that has several types: their
// gradients are copied, as float32.
class GradientTypes {
 public:
  GradientTypes(TableRef const* tables, int32_t num_tables, FeatureRef const* features,
                int32_t num_features)
      : features_(features), types_(size_t(num_tables)) {
    std::vector<bool> has_type(size_t(num_tables), false), has_two(size_t(num_tables), false);
    auto any = false;
    for (int32_t f = 0; f < num_features; ++f) {
      auto const table = size_t(features[f].table);
      if (has_type[table] && types_[table] != features[f].row_type) any = has_two[table] = true;
      types_[table] = has_two[table] ? ValueType::kFloat32 : features[f].row_type;
      has_type[table] = true;
    }
    if (!any) return;
    widened_.assign(features, features + num_features);
    for (auto& feature : widened_) {
      if (has_two[size_t(feature.table)]) widen(feature, tables[feature.table].dim);
    }
    features_ = widened_.data();
  }

  FeatureRef const* features() const { return features_; }
  ValueType type_of(int32_t table) const { return types_[size_t(table)]; }

 private:
  void widen(FeatureRef& feature, int32_t dim) {
    if (feature.row_type == ValueType::kFloat32) return;
    auto* const wide = arrays_.emplace_back(size_t(feature.num_bags * dim)).data();
    with_value_type(feature.row_type, [&](auto zero) {
      auto const* const rows = static_cast<decltype(zero) const*>(feature.rows);
      for (int64_t bag = 0; bag < feature.num_bags; ++bag) {
        auto const* const row = rows + row_offset(feature.places, bag, dim);
        for (int32_t c = 0; c < dim; ++c) wide[bag * dim + c] = to_float(row[c]);
      }
    });
    feature.rows = wide;
    feature.row_type = ValueType::kFloat32;
    feature.places = {};
  }

  FeatureRef const* features_;
  std::vector<ValueType> types_;  // [tables]
  std::vector<FeatureRef> widened_;
  std::list<Buffer<float>> arrays_;
};

}  // namespace dynemb::cpu
