// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/fetch.cu: says where an update finds the rows of some slots, and brings those that
// have no frame.
#include "cuda/launch.h"
#include "cuda/tiers/fetch.cuh"

namespace dynemb::cuda {
namespace {

constexpr int kIdBlocks = 8;  // of a multiprocessor

}  // namespace

size_t fetch_scratch_bytes(FetchArgs const& args) {
  Scratch scratch(nullptr);
  FetchScratch(args, scratch);
  return scratch.used();
}

cudaError_t fetch(FetchArgs const& args, void* memory, cudaStream_t stream) {
  Scratch pieces(memory);
  FetchScratch const scratch(args, pieces);
  auto const& call = scratch.call;
  DYNEMB_CUDA_TRY(scratch.numbers.clear(stream));
  auto const noted = std::max<int64_t>({args.num_ids, args.tier.spill_rows, 1});
  auto const blocks = persistent_blocks(ceil_div(noted, kThreads), kIdBlocks);
  DYNEMB_CUDA_TRY(launch(note_homeless_kernel, blocks, stream, call));
  auto const numbering = numbering_blocks(args.table);
  if (numbering == 0) return cudaMemsetAsync(args.count, 0, sizeof(int32_t), stream);
  DYNEMB_CUDA_TRY(launch(number_homeless_kernel, numbering, stream, call));
  return launch(bring_rows_kernel, call.bring_blocks + blocks, stream, call);
}

}  // namespace dynemb::cuda
