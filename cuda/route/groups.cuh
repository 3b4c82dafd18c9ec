// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/route/groups.cuh: the parts of a route, as many at a time as a kernel takes as a parameter.
//
// The ids of a part are a segment of the sort. Parts without ids are left out. Where there are more
// than kMaxTables, each group has kernels of its own, one group after the other.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/route.h"
#include "cuda/sort/segments.cuh"

namespace dynemb::cuda {

using RouteSegments = Segments<kMaxTables>;

struct GroupPart {
  int32_t first_segment;
  Owners owners;
  StartsRange starts;
  HashFactors hash;
};

struct RouteGroup {
  RouteSegments segments;
  uint32_t tiles_before;  // in the groups before
  int64_t items_of_row;
  GroupPart parts[kMaxTables];

  uint32_t num_items() const {
    return segments.first_item[segments.count] - segments.first_item[0];
  }
  uint32_t num_tiles() const { return segments.first_tile[segments.count]; }
  uint32_t num_rows() const { return segments.first_row[segments.count]; }
};

constexpr int64_t kIdsOfRow = 4 * kKeysThreads;  // at least

// Sorted are all bits of core/route.h's sort_key.
inline SortLayout route_layout(RouteArgs const& args) { return {32, args.num_ids}; }

inline int64_t num_filled_parts(RouteArgs const& args) {
  return std::count_if(args.parts, args.parts + args.num_parts,
                       [](RoutePart const& part) { return part.size > 0; });
}

inline int64_t most_tiles(RouteArgs const& args) {
  return args.num_ids / route_layout(args).items_of_tile() + num_filled_parts(args);
}

// Fills a group with parts from `part` on; returns the part after its last. Items begin where those
// of the group `before` end.
inline int32_t fill_group(RouteArgs const& args, int32_t part, RouteGroup const& before,
                          RouteGroup* group) {
  auto& segments = group->segments;
  auto const items_of_tile = route_layout(args).items_of_tile();
  segments.count = 0;
  segments.first_item[0] = before.segments.first_item[before.segments.count];
  segments.first_tile[0] = segments.first_row[0] = 0;
  group->tiles_before = before.tiles_before + before.num_tiles();
  int64_t largest = 0;
  for (; part < args.num_parts && segments.count < kMaxTables; ++part) {
    auto const& [size, first_segment, owners, hash] = args.parts[part];
    if (size == 0) continue;
    auto const s = segments.count++;
    group->parts[s] = {first_segment, owners, starts_of_part(args, part), hash};
    segments.first_item[s + 1] = segments.first_item[s] + static_cast<uint32_t>(size);
    segments.first_tile[s + 1] =
        segments.first_tile[s] + static_cast<uint32_t>(ceil_div(size, items_of_tile));
    largest = std::max(largest, size);
  }
  group->items_of_row = items_of_row(largest, kIdsOfRow);
  for (int32_t s = 0; s < segments.count; ++s) {
    auto const size = segments.first_item[s + 1] - segments.first_item[s];
    auto const rows = ceil_div(int64_t{size}, group->items_of_row);
    segments.first_row[s + 1] = segments.first_row[s] + static_cast<uint32_t>(rows);
  }
  return part;
}

// Calls function(group) for one group after the other, until there is an error.
template <class Function>
cudaError_t for_each_group(RouteArgs const& args, Function const& function) {
  RouteGroup groups[2] = {};
  int now = 0;
  for (int32_t part = 0; part < args.num_parts; now = 1 - now) {
    part = fill_group(args, part, groups[1 - now], &groups[now]);
    if (groups[now].segments.count > 0) DYNEMB_CUDA_TRY(function(groups[now]));
  }
  return cudaSuccess;
}

}  // namespace dynemb::cuda
