// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/selecting_lookup.cu: training lookups in which a table keeps scores as they are or
// has given ones, or an id stands for several. Compiled for calls of any size only.
#include "cuda/lookup/lookup_ids.cuh"

namespace dynemb::cuda {
namespace {

struct RaiseCall {
  TableRef table;
  FeatureRef feature;
  uint32_t const* uses;
};

__global__ void __launch_bounds__(kThreads) raise_kernel(__grid_constant__ RaiseCall const call) {
  auto const step = int64_t{gridDim.x} * kThreads;
  for (auto i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < call.feature.num_ids; i += step) {
    raise_custom_score(call.table, call.feature, call.uses, i);
  }
}

// This is launched after all other kernels of the lookup.
cudaError_t raise_scores(LookupArgs const& args, cudaStream_t stream) {
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto const& feature = args.features[f];
    if (!raises_custom_scores(args, f) || feature.num_ids == 0) continue;
    auto const call = RaiseCall{args.tables[feature.table], feature, args.uses[f]};
    auto const blocks = persistent_blocks(ceil_div(feature.num_ids, kThreads), 4);
    DYNEMB_CUDA_TRY(launch(raise_kernel, blocks, stream, call));
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t launch_selecting_lookup(LookupArgs const& args, LookupScratch const& scratch,
                                    cudaStream_t stream) {
  using Size = CallSize<kMaxTables, kMaxFeatures>;
  DYNEMB_CUDA_TRY((launch_lookup<true, Size>(args, scratch, stream)));
  return raise_scores(args, stream);
}

}  // namespace dynemb::cuda
