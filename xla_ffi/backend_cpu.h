// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/backend_cpu.h: operations run on XLA's thread pool and are complete when they return.
#pragma once

#include <functional>
#include <optional>

#include "cpu/table_ops.h"
#include "xla/ffi/api/ffi.h"
#include "xla_ffi/operations.h"

namespace dynemb::backend {

struct Context {
  cpu::ThreadPool pool;
};

// Handlers of the CPU run once for every execution, so there is nothing to declare.
inline constexpr std::initializer_list<xla::ffi::Traits> kTraits = {};
inline constexpr char const* kPlatform = "cpu";

#define DYNEMB_CPU_OPERATION(op, Args)                                     \
  inline xla::ffi::Error op(Context& context, Args const& args, Scratch) { \
    cpu::op(args, context.pool);                                           \
    return xla::ffi::Error::Success();                                     \
  }                                                                        \
  inline size_t op##_scratch_bytes(Args const&) { return 0; }
DYNEMB_FOR_EACH_OPERATION(DYNEMB_CPU_OPERATION)
DYNEMB_FOR_EACH_TIER_OPERATION(DYNEMB_CPU_OPERATION)
#undef DYNEMB_CPU_OPERATION

}  // namespace dynemb::backend

template <>
struct xla::ffi::CtxDecoding<dynemb::backend::Context> {
  using Type = dynemb::backend::Context;

  static std::optional<Type> Decode(XLA_FFI_Api const* api, XLA_FFI_ExecutionContext* ctx,
                                    DiagnosticEngine& diagnostic) {
    auto const pool = CtxDecoding<ThreadPool>::Decode(api, ctx, diagnostic);
    if (!pool.has_value()) return std::nullopt;
    auto const schedule = [pool = *pool](std::function<void()> task) mutable {
      pool.Schedule(std::move(task));
    };
    return Type{{pool->num_threads(), schedule}};
  }
};
