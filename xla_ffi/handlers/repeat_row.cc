// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#ifndef DYNEMB_CUDA

#include "xla_ffi/handlers/repeat_row.h"

#include "cpu/table/repeat_row.h"
#include "xla_ffi/backend.h"

namespace dynemb {

namespace ffi = xla::ffi;

XLA_FFI_Error* repeat_row(XLA_FFI_CallFrame* frame) {
  auto const run = [](backend::Context context, ffi::AnyBuffer row,
                      ffi::Result<ffi::AnyBuffer> rows) {
    auto const bytes = static_cast<int64_t>(row.size_bytes());
    auto const all = static_cast<int64_t>(rows->size_bytes());
    if (bytes == 0 || all % bytes != 0) {
      return ffi::Error::InvalidArgument("repeat_row: the result must have whole rows");
    }
    cpu::repeat_row(static_cast<char const*>(row.untyped_data()), bytes,
                    static_cast<char*>(rows->untyped_data()), all / bytes, context.pool);
    return ffi::Error::Success();
  };
  static auto* const handler = ffi::Ffi::Bind()
                                   .Ctx<backend::Context>()
                                   .Arg<ffi::AnyBuffer>()
                                   .Ret<ffi::AnyBuffer>()
                                   .To(run)
                                   .release();
  return handler->Call(frame);
}

}  // namespace dynemb

#endif
