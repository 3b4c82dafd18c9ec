// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/feature_chunks.h: cuts the ids or bags of all features of a call into pieces of work.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/feature_ref.h"
#include "cpu/thread_pool.h"

namespace dynemb::cpu {

struct FeatureChunk {
  int32_t feature;
  int64_t begin, end;
};

// `count(feature)` items of each feature, at most `grain` a chunk.
template <class Count>
std::vector<FeatureChunk> cut(FeatureRef const* features, int32_t num_features, int64_t grain,
                              Count const& count) {
  std::vector<FeatureChunk> chunks;
  for (int32_t feature = 0; feature < num_features; ++feature) {
    auto const items = count(features[feature]);
    for (int64_t begin = 0; begin < items; begin += grain) {
      chunks.push_back({feature, begin, std::min(items, begin + grain)});
    }
  }
  return chunks;
}

inline std::vector<FeatureChunk> cut_ids(FeatureRef const* features, int32_t num_features,
                                         int64_t grain) {
  return cut(features, num_features, grain, [](FeatureRef const& f) { return f.num_ids; });
}

// About `grain` ids a chunk, and whole bags.
inline std::vector<FeatureChunk> cut_bags(FeatureRef const* features, int32_t num_features,
                                          int64_t grain) {
  std::vector<FeatureChunk> chunks;
  for (int32_t i = 0; i < num_features; ++i) {
    auto const& f = features[i];
    if (f.pooling == Pooling::kNoRows) continue;
    auto const ids_per_bag = std::max<int64_t>(1, f.num_ids / std::max<int64_t>(1, f.num_bags));
    auto const bags = std::max<int64_t>(1, grain / ids_per_bag);
    for (int64_t begin = 0; begin < f.num_bags; begin += bags) {
      chunks.push_back({i, begin, std::min(f.num_bags, begin + bags)});
    }
  }
  return chunks;
}

template <class Function>
void for_each(ThreadPool const& pool, std::vector<FeatureChunk> const& chunks,
              Function const& function) {
  for_each_chunk(pool, static_cast<int64_t>(chunks.size()),
                 [&](int64_t chunk) { function(chunk, chunks[static_cast<size_t>(chunk)]); });
}

}  // namespace dynemb::cpu
