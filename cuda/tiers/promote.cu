// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/promote.cu: brings the rows of some slots into frames.
#include "cuda/launch.h"
#include "cuda/tiers/promote.cuh"

namespace dynemb::cuda {

size_t promote_scratch_bytes(PromoteArgs const& args) {
  Scratch scratch(nullptr);
  PromoteScratch(args, scratch);
  return scratch.used();
}

cudaError_t promote(PromoteArgs const& args, void* memory, cudaStream_t stream) {
  Scratch pieces(memory);
  PromoteScratch const scratch(args, pieces);
  auto const& call = scratch.call;
  DYNEMB_CUDA_TRY(scratch.numbers.clear(stream));
  auto const noted = std::max<int64_t>({args.num_ids, args.tier.spill_rows, 1});
  DYNEMB_CUDA_TRY(
      launch(note_slots_kernel, persistent_blocks(ceil_div(noted, kThreads), 8), stream, call));
  if (args.num_ids == 0) return cudaSuccess;
  return launch(give_frames_kernel, blocks_of_buckets(args.table), stream, call);
}

}  // namespace dynemb::cuda
