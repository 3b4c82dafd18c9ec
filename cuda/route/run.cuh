// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/route/run.cuh: the kernels of a route, one behind the other. The sort is given: tests have
// one that needs no GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/route/groups.cuh"
#include "cuda/route/hash_keys.cuh"
#include "cuda/route/numbers.cuh"
#include "cuda/route/ties.cuh"

namespace dynemb::cuda {

struct RouteScratch {
  SortLayout layout;
  SortBuffers<uint32_t> sort;  // for one group after the other
  Zeros counts;                // of the distinct ids in each tile of all groups; a pair each

  RouteScratch(RouteArgs const& args, Scratch& scratch)
      : layout(route_layout(args)),
        sort(layout, args.num_ids, std::min<int64_t>(num_filled_parts(args), kMaxTables),
             args.num_ids / kIdsOfRow + kMaxTables, scratch) {
    auto const pairs = ceil_div(most_tiles(args), 2);
    counts = {scratch.take<uint64_t>(pairs), static_cast<uint32_t>(pairs)};
  }

  uint32_t* tile_counts() const { return reinterpret_cast<uint32_t*>(counts.array); }
};

inline void copy_hashes(RouteGroup const& group, HashFactors (&hashes)[kMaxTables]) {
  for (int32_t s = 0; s < group.segments.count; ++s) hashes[s] = group.parts[s].hash;
}

inline cudaError_t make_keys(RouteArgs const& args, RouteScratch const& scratch,
                             RouteGroup const& group, cudaStream_t stream) {
  auto const is_first = group.tiles_before == 0;
  RouteKeysCall call{args.ids,
                     scratch.sort.keys[0],
                     scratch.sort.tally,
                     is_first ? scratch.counts : Zeros{nullptr, 0},
                     group.items_of_row,
                     group.segments,
                     {}};
  copy_hashes(group, call.hash);
  return launch(route_keys_kernel, group.num_rows(), stream, call, 0, kKeysThreads);
}

template <int kItems>
cudaError_t number(RouteArgs const& args, RouteScratch const& scratch, RouteGroup const& group,
                   int sorted, cudaStream_t stream) {
  auto const& sort = scratch.sort;
  auto* const repaired = sort.items[1 - sorted];
  auto* const counts = scratch.tile_counts();
  TiesCall ties{args.ids, sort.keys[sorted],  sort.items[sorted], repaired, sort.keys[1 - sorted],
                counts,   group.tiles_before, group.segments,     {}};
  copy_hashes(group, ties.hash);
  DYNEMB_CUDA_TRY(launch(ties_kernel<kItems>, group.num_tiles(), stream, ties));
  NumbersCall numbers{args.ids,
                      sort.keys[sorted],
                      sort.items[sorted],
                      repaired,
                      counts,
                      group.tiles_before,
                      static_cast<int32_t>(args.num_ids),
                      args.unique_of,
                      args.first,
                      args.starts,
                      args.order,
                      group.segments,
                      {}};
  std::copy_n(group.parts, group.segments.count, numbers.parts);
  return launch(numbers_kernel<kItems>, group.num_tiles(), stream, numbers);
}

// `sort(buffers, layout, segments, &sorted)` leaves the keys in buffers.keys[sorted], and their
// items in buffers.items[sorted].
template <class Sort>
cudaError_t run_route(RouteArgs const& args, void* memory, cudaStream_t stream, Sort const& sort) {
  Scratch pieces(memory);
  RouteScratch const scratch(args, pieces);
  return for_each_group(args, [&](RouteGroup const& group) {
    DYNEMB_CUDA_TRY(make_keys(args, scratch, group, stream));
    int sorted = 0;
    DYNEMB_CUDA_TRY(sort(scratch.sort, scratch.layout, group.segments, &sorted));
    return scratch.layout.items_of_thread == 4 ? number<4>(args, scratch, group, sorted, stream)
                                               : number<16>(args, scratch, group, sorted, stream);
  });
}

inline size_t bytes_of_route(RouteArgs const& args) {
  Scratch scratch(nullptr);
  RouteScratch(args, scratch);
  return scratch.used();
}

}  // namespace dynemb::cuda
