// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/backend_cuda.h: operations go to XLA's stream.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "cuda/launch.h"
#include "xla/ffi/api/ffi.h"
#include "xla_ffi/operations.h"

namespace dynemb::backend {

struct Context {
  cudaStream_t stream;
};

// Launches depend on static shapes only, so XLA may record them once and replay them.
inline constexpr std::initializer_list<xla::ffi::Traits> kTraits = {
    xla::ffi::Traits::kCmdBufferCompatible};
inline constexpr char const* kPlatform = "CUDA";

template <class Args>
xla::ffi::Error run_on_stream(Context& context, Args const& args, Scratch scratch, char const* name,
                              size_t needed,
                              cudaError_t (*launch)(Args const&, void*, cudaStream_t)) {
  if (scratch.bytes < needed) {
    return xla::ffi::Error::InvalidArgument(
        std::string(name) + " needs " + std::to_string(needed) + " bytes of scratch, got " +
        std::to_string(scratch.bytes) +
        ": the program was traced where the CUDA kernels are not installed");
  }
  auto const error = launch(args, scratch.data, context.stream);
  if (error == cudaSuccess) return xla::ffi::Error::Success();
  return xla::ffi::Error::Internal(std::string(name) + ": " + cudaGetErrorString(error));
}

#define DYNEMB_CUDA_OPERATION(op, Args)                                                           \
  inline size_t op##_scratch_bytes(Args const& args) { return cuda::op##_scratch_bytes(args); }   \
  inline xla::ffi::Error op(Context& context, Args const& args, Scratch scratch) {                \
    return run_on_stream<Args>(context, args, scratch, #op, op##_scratch_bytes(args), &cuda::op); \
  }
DYNEMB_FOR_EACH_OPERATION(DYNEMB_CUDA_OPERATION)
DYNEMB_FOR_EACH_TIER_OPERATION(DYNEMB_CUDA_OPERATION)
#undef DYNEMB_CUDA_OPERATION

}  // namespace dynemb::backend

template <>
struct xla::ffi::CtxDecoding<dynemb::backend::Context> {
  using Type = dynemb::backend::Context;

  static std::optional<Type> Decode(XLA_FFI_Api const* api, XLA_FFI_ExecutionContext* ctx,
                                    DiagnosticEngine& diagnostic) {
    auto const stream = CtxDecoding<PlatformStream<cudaStream_t>>::Decode(api, ctx, diagnostic);
    if (!stream.has_value()) return std::nullopt;
    return Type{*stream};
  }
};
