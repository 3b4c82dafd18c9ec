// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/distinct.cuh: the distinct numbers of a batch: keys, a sort, ranks.
#pragma once

#include <algorithm>

#include "core/distinct.h"
#include "cuda/gradients/keys.cuh"
#include "cuda/sort/segment_sort.cuh"
#include "cuda/tensor_train/number_keys.cuh"
#include "cuda/tensor_train/number_ranks.cuh"

namespace dynemb::cuda {

// Holds the memory of a call with numbers.
struct DistinctScratch {
  SortLayout layout;
  int64_t items_of_row, num_rows;
  int64_t num_tiles;  // of the kernels behind the sort
  SortBuffers<uint32_t> sort;
  uint32_t* counts;  // of each tile

  DistinctScratch(DistinctArgs const& args, Scratch& scratch)
      : layout(bits_of(args.limit), args.num_ids),
        items_of_row(cuda::items_of_row(args.num_ids, kNumbersOfRow)),
        num_rows(ceil_div(args.num_ids, items_of_row)),
        num_tiles(ceil_div(args.num_ids, kRanksTile)),
        sort(layout, args.num_ids, 1, num_rows, scratch),
        counts(scratch.take<uint32_t>(num_tiles)) {}
};

inline size_t distinct_bytes(DistinctArgs const& args) {
  Scratch scratch(nullptr);
  DistinctScratch(args, scratch);
  return scratch.used();
}

inline Segments<1> one_segment(DistinctArgs const& args, DistinctScratch const& scratch) {
  return {1,
          {0, static_cast<uint32_t>(args.num_ids)},
          {0, static_cast<uint32_t>(ceil_div(args.num_ids, scratch.layout.items_of_tile()))},
          {0, static_cast<uint32_t>(scratch.num_rows)}};
}

// Runs the kernels of a call that has numbers.
inline cudaError_t run_distinct(DistinctArgs const& args, void* memory, cudaStream_t stream) {
  Scratch pieces(memory);
  DistinctScratch scratch(args, pieces);
  auto const num_items = static_cast<uint32_t>(args.num_ids);
  // The items of the last pass are a result.
  auto* const positions = reinterpret_cast<uint32_t*>(args.positions);
  scratch.sort.items[scratch.layout.passes % 2] = positions;
  NumberKeysCall const keys{args.numbers,
                            num_items,
                            static_cast<uint32_t>(scratch.items_of_row),
                            parts_of(args),
                            scratch.sort.keys[0],
                            scratch.layout.digit_mask(),
                            scratch.sort.tally};
  DYNEMB_CUDA_TRY(launch(number_keys_kernel, scratch.num_rows, stream, keys, 0, kKeysThreads));
  int sorted = 0;
  DYNEMB_CUDA_TRY(
      sort_segments(scratch.sort, scratch.layout, one_segment(args, scratch), stream, &sorted));
  RanksCall const ranks{num_items,
                        static_cast<uint32_t>(scratch.num_tiles),
                        scratch.sort.keys[sorted],
                        args.positions,
                        parts_of(args),
                        scratch.counts,
                        args.values,
                        args.inverse,
                        args.ranks,
                        args.count,
                        args.starts,
                        args.of_suffix};
  return rank_numbers(ranks, stream);
}

}  // namespace dynemb::cuda
