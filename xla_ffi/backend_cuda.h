// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/backend_cuda.h: operations go to XLA's stream, with scratch memory from XLA.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "cuda/launch.h"
#include "xla/ffi/api/ffi.h"

namespace dynemb::backend {

struct Context {
  cudaStream_t stream;
  xla::ffi::ScratchAllocator scratch;
};

// Launches depend on static shapes only, so XLA may record them once and replay them.
inline constexpr std::initializer_list<xla::ffi::Traits> kTraits = {
    xla::ffi::Traits::kCmdBufferCompatible};
inline constexpr char const* kPlatform = "CUDA";

template <class Args>
xla::ffi::Error run_on_stream(Context& context, Args const& args, char const* name,
                              size_t (*scratch_bytes)(Args const&),
                              cudaError_t (*launch)(Args const&, void*, cudaStream_t)) {
  void* scratch = nullptr;
  if (auto const bytes = scratch_bytes(args); bytes > 0) {
    // XLA promises 64 bytes only on request; its allocators on a GPU give 256, as CUDA does.
    auto const memory = context.scratch.Allocate(bytes);
    if (!memory.has_value()) {
      return xla::ffi::Error(xla::ffi::ErrorCode::kResourceExhausted,
                             std::string(name) + ": no device memory for " + std::to_string(bytes) +
                                 " bytes of scratch");
    }
    scratch = *memory;
  }
  auto const error = launch(args, scratch, context.stream);
  if (error == cudaSuccess) return xla::ffi::Error::Success();
  return xla::ffi::Error::Internal(std::string(name) + ": " + cudaGetErrorString(error));
}

#define DYNEMB_CUDA_OPERATION(op, Args)                                                   \
  inline xla::ffi::Error op(Context& context, Args const& args) {                         \
    return run_on_stream<Args>(context, args, #op, &cuda::op##_scratch_bytes, &cuda::op); \
  }
DYNEMB_CUDA_OPERATION(lookup, LookupArgs)
DYNEMB_CUDA_OPERATION(find, FindArgs)
DYNEMB_CUDA_OPERATION(update, UpdateArgs)
DYNEMB_CUDA_OPERATION(reduce, ReduceArgs)
DYNEMB_CUDA_OPERATION(gather, RowsArgs)
DYNEMB_CUDA_OPERATION(scatter, RowsArgs)
DYNEMB_CUDA_OPERATION(erase, EraseArgs)
DYNEMB_CUDA_OPERATION(export_batch, ExportArgs)
#undef DYNEMB_CUDA_OPERATION

}  // namespace dynemb::backend

template <>
struct xla::ffi::CtxDecoding<dynemb::backend::Context> {
  using Type = dynemb::backend::Context;

  static std::optional<Type> Decode(XLA_FFI_Api const* api, XLA_FFI_ExecutionContext* ctx,
                                    DiagnosticEngine& diagnostic) {
    auto const stream = CtxDecoding<PlatformStream<cudaStream_t>>::Decode(api, ctx, diagnostic);
    if (!stream.has_value()) return std::nullopt;
    auto scratch = CtxDecoding<ScratchAllocator>::Decode(api, ctx, diagnostic);
    if (!scratch.has_value()) return std::nullopt;
    return Type{*stream, std::move(*scratch)};
  }
};
