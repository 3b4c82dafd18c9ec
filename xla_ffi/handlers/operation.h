// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/operation.h: the handler of an operation: read, check, run.
//
// An operation is a struct with
//   kTarget                          what XLA calls it, "dynemb_..."
//   bind()                           its attributes: bind_features, bind_table or its own
//   args                             of core/args.h, and whatever these point to on the host
//   read(reader, attributes...)      fills `args`; a mistake is kept by the reader
//   kRun                             of the backend
//   scratch_bytes(shape)             of a call of that shape
// Compiled once a backend.
#pragma once

#include <type_traits>
#include <utility>

#include "xla_ffi/backend.h"
#include "xla_ffi/buffers.h"
#include "xla_ffi/handlers.h"
#include "xla_ffi/tables.h"

namespace dynemb {

// Bindings of attributes: those of a call about tables and features, of one about one table, and
// what all begin with.
inline auto bind() {
  return ffi::Ffi::Bind().Ctx<backend::Context>().RemainingArgs().RemainingRets();
}

inline auto bind_table() {
  return bind()
      .Attr<IntAttr>("tables")
      .Attr<FloatAttr>("initializers")
      .Attr<FloatAttr>("state_initial");
}

inline auto bind_features() { return bind_table().Attr<IntAttr>("features"); }

// An operation whose results lie in host memory says kOnHost: it has no scratch, which would lie in
// device memory.
template <class Operation>
constexpr auto has_scratch(int) -> decltype(Operation::kOnHost) {
  return !Operation::kOnHost;
}
template <class Operation>
constexpr bool has_scratch(long) {
  return true;
}

// What a handler returns for a call that it refuses.
template <class Result>
Result refused(ffi::Error error) {
  if constexpr (std::is_same_v<Result, ffi::Error>) {
    return error;
  } else {
    ffi::Promise promise;
    Result result(promise);
    promise.SetError(std::move(error));
    return result;
  }
}

template <class Operation>
class Handler {
 public:
  // An ffi::Error, or a ffi::Future of a call that goes on when it returns.
  using Result = decltype(Operation::kRun(std::declval<backend::Context&>(),
                                          std::declval<Operation&>().args, backend::Scratch{}));

  // This call is about tables.
  template <class... More>
  Result operator()(backend::Context context, ffi::RemainingArgs const& operands,
                    ffi::RemainingRets const& results, IntAttr tables, FloatAttr initializers,
                    FloatAttr state_initial, More... more) const {
    return handle(context, operands, results, TableAttrs{tables, initializers, state_initial},
                  more...);
  }

  // A call that knows no table.
  template <class... Attributes>
  Result operator()(backend::Context context, ffi::RemainingArgs const& operands,
                    ffi::RemainingRets const& results, Attributes... attributes) const {
    return handle(context, operands, results, attributes...);
  }

 private:
  template <class... Attributes>
  static Result handle(backend::Context context, ffi::RemainingArgs const& operands,
                       ffi::RemainingRets const& results, Attributes const&... attributes) {
    BufferReader reader(operation_of(Operation::kTarget), operands, results);
    Operation operation;  // up to 30 kB, of which most calls use little: `read` sets what is used
    operation.read(reader, attributes...);
    auto const scratch = read_scratch(reader, has_scratch<Operation>(0));
    auto error = reader.finish();
    if (error.failure()) return refused<Result>(std::move(error));
    return Operation::kRun(context, operation.args, scratch);
  }

  // The last operand of every call, which is not read (jax_dynemb/_src/ops/call.py), and the last
  // result, empty where an operation needs none.
  static backend::Scratch read_scratch(BufferReader& reader, bool has_scratch) {
    reader.next_arg(BufferRule::kWork);
    if (!has_scratch) return {nullptr, 0};
    auto const scratch = reader.next_ret(BufferRule::kScratch);
    return {scratch.untyped_data(), scratch.size_bytes()};
  }
};

template <class Operation>
XLA_FFI_Error* call(XLA_FFI_CallFrame* frame) {
  static auto* const handler =
      Operation::bind().To(Handler<Operation>{}, backend::kTraits).release();
  return handler->Call(frame);
}

template <class Operation>
Registration registration_of() {
  return {Operation::kTarget, &call<Operation>, &Operation::scratch_bytes};
}

inline size_t no_scratch(CallShape const& /*shape*/) { return 0; }

}  // namespace dynemb
