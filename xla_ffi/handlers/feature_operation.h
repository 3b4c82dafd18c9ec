// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/feature_operation.h: what operations on tables and features share.
#pragma once

#include <memory>

#include "core/args.h"
#include "xla_ffi/features.h"
#include "xla_ffi/handlers/operation.h"

namespace dynemb {

// Scratch of a call: of the arguments only what a size depends on is set.
template <class Args, size_t (*bytes_of)(Args const&)>
size_t feature_scratch_bytes(CallShape const& shape) {
  if (shape.buckets.size() > kMaxTables || shape.ids.size() > kMaxFeatures) return 0;
  auto const args = std::make_unique<Args>();
  args->num_tables = static_cast<int32_t>(shape.buckets.size());
  args->num_features = static_cast<int32_t>(shape.ids.size());
  for (size_t t = 0; t < shape.buckets.size(); ++t) {
    args->tables[t].local_buckets = shape.buckets[t];
    args->tables[t].dim = shape.dims[t];
  }
  for (size_t f = 0; f < shape.ids.size(); ++f) args->features[f].num_ids = shape.ids[f];
  return bytes_of(*args);
}

}  // namespace dynemb
