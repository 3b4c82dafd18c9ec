// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/promote.cu: brings the rows of some slots into frames.
#include "cuda/launch.h"
#include "cuda/tiers/promote.cuh"

namespace dynemb::cuda {

size_t promote_scratch_bytes(PromoteArgs const& args) {
  Scratch scratch(nullptr);
  PromoteScratch const measured(args, scratch);
  return scratch.used();
}

cudaError_t promote(PromoteArgs const& args, void* memory, cudaStream_t stream) {
  Scratch pieces(memory);
  PromoteScratch const scratch(args, pieces);
  auto const& call = scratch.call;
  if (args.num_tables == 0) return cudaSuccess;
  DYNEMB_CUDA_TRY(scratch.numbers.clear(stream));
  DYNEMB_CUDA_TRY(launch(note_slots_kernel, call.of_ids.total(), stream, call));
  if (call.of_buckets.total() == 0) return cudaSuccess;
  DYNEMB_CUDA_TRY(launch(note_touched_kernel, call.of_ids.total(), stream, call));
  return launch(give_frames_kernel, call.of_buckets.total(), stream, call);
}

}  // namespace dynemb::cuda
