// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/rows.cu: rows of a lookup, from frames and from homes. A find has rows in order of
// home address where it copies one for each id. A training lookup meets most rows in frames.
#include <algorithm>

#include "cuda/launch.h"
#include "cuda/tiers/ordered_rows.cuh"
#include "cuda/tiers/rows.cuh"

namespace dynemb::cuda {
namespace {

template <class Size>
cudaError_t launch_in_order(TierRowsArgs const& args, TierRowsCall<Size> const& call,
                            cudaStream_t stream) {
  auto const kernel =
      are_floats(args) ? ordered_rows_kernel<true, Size> : ordered_rows_kernel<false, Size>;
  auto const chunks = int64_t{call.first_block[args.num_features]};
  return launch(kernel, persistent_blocks(chunks, 1), stream, call, 0, kOrderThreads);
}

template <class Size>
cudaError_t launch_tier_rows(TierRowsArgs const& args, cudaStream_t stream) {
  TierRowsCall<Size> call;
  auto const most = persistent_blocks(total_ids(args), 1);
  auto const chunks = fill_call(
      args, [&](auto& one) { return copies_in_order(args, one) ? chunks_of(one, most) : 0; },
      &call);
  if (chunks != 0) DYNEMB_CUDA_TRY(launch_in_order(args, call, stream));
  auto const blocks_of = [&](FeatureRef const& one) {
    return copies_in_order(args, one) ? 0 : tier_rows_blocks(one, dim_of(args, one));
  };
  auto const blocks = fill_call(args, blocks_of, &call);
  if (chunks != 0 && blocks == 0) return cudaSuccess;
  auto const kernel =
      are_floats(args) ? tier_rows_kernel<true, Size> : tier_rows_kernel<false, Size>;
  return launch(kernel, std::max<int64_t>(blocks, 1), stream, call);
}

}  // namespace

size_t tier_rows_scratch_bytes(TierRowsArgs const& /*args*/) { return 0; }

cudaError_t tier_rows(TierRowsArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  return with_call_size(args.num_tables, args.num_features,
                        [&](auto size) { return launch_tier_rows<decltype(size)>(args, stream); });
}

}  // namespace dynemb::cuda
