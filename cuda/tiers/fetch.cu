// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/fetch.cu: says where an update finds the rows of some slots, and brings those that
// have no frame.
#include "cuda/launch.h"
#include "cuda/tiers/fetch.cuh"

namespace dynemb::cuda {

size_t fetch_scratch_bytes(FetchArgs const& args) {
  Scratch scratch(nullptr);
  FetchScratch const measured(args, scratch);
  return scratch.used();
}

cudaError_t fetch(FetchArgs const& args, void* memory, cudaStream_t stream) {
  Scratch pieces(memory);
  FetchScratch const scratch(args, pieces);
  auto const& call = scratch.call;
  if (args.num_tables == 0) return cudaSuccess;
  DYNEMB_CUDA_TRY(scratch.numbers.clear(stream));
  DYNEMB_CUDA_TRY(launch(note_homeless_kernel, call.of_ids.total(), stream, call));
  if (call.numbering.total() == 0) return cudaSuccess;
  DYNEMB_CUDA_TRY(launch(number_homeless_kernel, call.numbering.total(), stream, call));
  return launch(bring_rows_kernel, call.bring_blocks + call.of_ids.total(), stream, call);
}

}  // namespace dynemb::cuda
