// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/find_packed.cu: serving lookup in tables whose rows are packed: one kernel, that of
// find with another format of stored rows.
#include "cuda/grid/packed_format.cuh"
#include "cuda/launch.h"
#include "cuda/lookup/find_ids.cuh"
#include "cuda/lookup/probe_rows.cuh"

namespace dynemb::cuda {
namespace {

template <RowCode kCode, class Size>
cudaError_t launch_packed(FindArgs const& args, cudaStream_t stream) {
  RowsCall<Size, FindIds> p;
  auto const quads_of = [](TableRef const&) { return kPooledQuads<Packed<kCode>>; };
  auto const blocks = fill_rows_call(args, {}, {}, FindIds{}, quads_of, &p);
  if (blocks == 0) return cudaSuccess;
  return launch_rows<PackedFormats<kCode>>(args, p, blocks, stream);
}

}  // namespace

size_t find_packed_scratch_bytes(FindPackedArgs const& /*args*/) { return 0; }

cudaError_t find_packed(FindPackedArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  if (!is_countable(args)) return cudaErrorInvalidValue;
  auto status = cudaErrorInvalidValue;
  with_row_code(args.code, [&](auto code) {
    status = with_call_size(args.num_tables, args.num_features, [&](auto size) {
      return launch_packed<decltype(code)::value, decltype(size)>(args, stream);
    });
  });
  return status;
}

}  // namespace dynemb::cuda
