// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/find.cu: serving lookup: one kernel, which changes nothing in the table.
#include "cuda/launch.h"
#include "cuda/lookup/bag_stream.cuh"
#include "cuda/lookup/find_ids.cuh"
#include "cuda/lookup/probe_rows.cuh"

namespace dynemb::cuda {

size_t find_scratch_bytes(FindArgs const& /*args*/) { return 0; }

cudaError_t find(FindArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  if (!is_countable(args)) return cudaErrorInvalidValue;
  return with_call_size(args.num_tables, args.num_features, [&](auto size) {
    using Size = decltype(size);
    if (is_plain<FloatFormats>(args)) return stream_bags<FloatFormats, Size>(args, stream);
    if (is_plain<HalfFormats>(args)) return stream_bags<HalfFormats, Size>(args, stream);
    if (is_plain<MixedFormats>(args)) return stream_bags<MixedFormats, Size>(args, stream);
    using HalfQuads = HalfQuadFormats<ValueType::kBFloat16>;
    if (is_plain<HalfQuads>(args)) return stream_bags<HalfQuads, Size>(args, stream);
    using MixedQuads = HalfQuadFormats<ValueType::kFloat32>;
    if (is_plain<MixedQuads>(args)) return stream_bags<MixedQuads, Size>(args, stream);
    return launch_rows<Size>(args, {}, {}, FindIds{}, stream);
  });
}

}  // namespace dynemb::cuda
