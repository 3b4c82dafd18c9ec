// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/features.h: features of a call: bags, weights, and where their rows are.
#pragma once

#include <vector>

#include "tests/fuzz/data.h"

namespace dynemb::fuzz {

struct Feature {
  int64_t table, pooling, bag_size, num_ids, num_bags;
  bool weighted;
  bool in_order = true;  // its offsets are those of core/offsets.h
  Array offsets, weights;
};

std::vector<Feature> make_features(Random& random, size_t num_tables);
void describe(Feature const& feature, std::vector<int64_t>& fields);
void add_bags(Call& call, Feature const& feature);

// The rows of one feature in an array of one axis: groups of them, some way apart.
Array place_rows(Random& random, int64_t num_rows, int64_t dim, XLA_FFI_DataType dtype,
                 int64_t* fields);
XLA_FFI_DataType float_type(Random& random);

}  // namespace dynemb::fuzz
