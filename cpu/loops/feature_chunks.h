// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/feature_chunks.h: cuts the ids or bags of all features of a call into pieces of work.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/feature_ref.h"
#include "cpu/loops/thread_pool.h"

namespace dynemb::cpu {

// Holds the positions [begin, end) of a feature, and the bags that lie in them.
struct FeatureChunk {
  int32_t feature;
  int64_t begin, end;
  int64_t first_bag, end_bag;
};

// At most `grain` ids of feature `f` a chunk; bags are not looked at.
inline std::vector<FeatureChunk> cut_ids(FeatureRef const* features, int32_t f, int64_t grain) {
  std::vector<FeatureChunk> chunks;
  for (int64_t begin = 0; begin < features[f].num_ids; begin += grain) {
    chunks.push_back({f, begin, std::min(features[f].num_ids, begin + grain), 0, 0});
  }
  return chunks;
}

// Cuts features into chunks of about `grain` ids and whole bags. Positions outside of all bags
// belong to a chunk too.
inline std::vector<FeatureChunk> cut_bags(FeatureRef const* features, int32_t num_features,
                                          int64_t grain) {
  std::vector<FeatureChunk> chunks;
  for (int32_t f = 0; f < num_features; ++f) {
    auto const& feature = features[f];
    auto const end_bag = feature.pooling == Pooling::kNoRows ? 0 : feature.num_bags;
    int64_t begin = 0, bag = 0;
    do {
      auto next_bag = end_bag;
      auto end = feature.num_ids;
      if (end - begin > grain) {
        if (end_bag == 0) {
          end = begin + grain;
        } else {
          next_bag = std::max(bag + 1, bag_of(feature, begin + grain));
          if (next_bag < end_bag) {
            auto const first = bag_range(feature, next_bag).begin;
            end = std::clamp(first, begin, feature.num_ids);
          }
        }
      }
      chunks.push_back({f, begin, end, bag, next_bag});
      begin = end;
      bag = next_bag;
    } while (begin < feature.num_ids || bag < end_bag);
  }
  return chunks;
}

// The threads for a call on these features: the caller alone, where another thread would wake up
// for less work than waking it takes.
inline ThreadPool const& threads_for(FeatureRef const* features, int32_t num_features,
                                     ThreadPool const& pool) {
  constexpr int64_t kFewest = 1024;  // ids and bags; a helper starts after some 10 us
  static ThreadPool const alone;
  int64_t work = 0;
  for (int32_t f = 0; f < num_features; ++f) work += features[f].num_ids + features[f].num_bags;
  return work < kFewest ? alone : pool;
}

template <class Function>
void for_each(ThreadPool const& pool, std::vector<FeatureChunk> const& chunks,
              Function const& function) {
  for_each_chunk(pool, static_cast<int64_t>(chunks.size()),
                 [&](int64_t chunk) { function(chunk, chunks[static_cast<size_t>(chunk)]); });
}

}  // namespace dynemb::cpu
