// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/route/route.cu: the distinct ids of a batch, numbered: keys, a sort by the upper half of the
// hash, ties, numbers.
#include "cuda/launch.h"
#include "cuda/route/run.cuh"
#include "cuda/sort/segment_sort.cuh"

namespace dynemb::cuda {

size_t route_scratch_bytes(RouteArgs const& args) { return bytes_of_route(args); }

cudaError_t route(RouteArgs const& args, void* memory, cudaStream_t stream) {
  if (args.num_ids == 0) {
    return cudaMemsetAsync(args.starts, 0, size_t(args.num_segments + 1) * sizeof(int32_t), stream);
  }
  return run_route(args, memory, stream,
                   [&](SortBuffers<uint32_t> const& buffers, SortLayout const& layout,
                       RouteSegments const& segments, int* sorted) {
                     return sort_segments(buffers, layout, segments, stream, sorted);
                   });
}

}  // namespace dynemb::cuda
