// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/buffers.h: the operands and results of a call, read in order and checked.
#pragma once

#include <cstdint>
#include <string>

#include "core/value_type.h"
#include "xla/ffi/api/ffi.h"
#include "xla_ffi/records.h"
#include "xla_ffi/rules.h"

namespace dynemb {

using IntAttr = ffi::Span<int64_t const>;
using FloatAttr = ffi::Span<float const>;

// Reads the operands and results of one call in order, and compares each with its rule
// (xla_ffi/rules.h). The first mistake is kept, so that a handler checks once, at the end; until
// then it touches no memory of a buffer.
class BufferReader {
 public:
  BufferReader(char const* op, ffi::RemainingArgs const& args, ffi::RemainingRets const& rets)
      : op_(op), args_(args), rets_(rets) {}

  ffi::AnyBuffer next_arg(BufferRule rule);
  ffi::AnyBuffer next_ret(BufferRule rule);
  // An operand that is also the next result; both must be one buffer.
  ffi::AnyBuffer next_aliased(BufferRule rule);
  // An array of any kind that passes through the call: nothing reads it here, but what reads the
  // result comes after the call.
  void pass_on();

  // What the next buffers are those of, for messages.
  void at(char const* what, int32_t number) { what_ = what, number_ = number; }
  Sizes& sizes() { return sizes_; }

  // Returns false after a mistake in this number or before.
  bool records(RecordRule rule, IntAttr numbers) { return keep(check_records(rule, numbers)); }
  bool expect(bool condition, char const* message) { return keep(condition ? "" : message); }
  bool failed() const { return !message_.empty(); }
  // Success, or the first mistake; also checks that every buffer was read.
  ffi::Error finish();

 private:
  ffi::AnyBuffer checked(char const* kind, BufferRule rule, ffi::AnyBuffer const& buffer);
  ffi::AnyBuffer missing(char const* kind, BufferRule rule);
  bool keep(std::string const& mistake);

  char const* op_;
  ffi::RemainingArgs const& args_;
  ffi::RemainingRets const& rets_;
  size_t next_arg_ = 0;
  size_t next_ret_ = 0;
  char const* what_ = nullptr;
  int32_t number_ = 0;
  Sizes sizes_;
  std::string message_;
};

ValueType value_type_of(ffi::AnyBuffer const& buffer);

template <class T>
T* data(ffi::AnyBuffer const& buffer) {
  return static_cast<T*>(buffer.untyped_data());
}

// 0 where the buffer has no such axis: its rule has refused it already.
inline int64_t dimension(ffi::AnyBuffer const& buffer, size_t axis) {
  auto const dims = buffer.dimensions();
  return axis < dims.size() ? dims[axis] : 0;
}

inline int32_t count_rows(IntAttr attr, int32_t fields) {
  return static_cast<int32_t>(attr.size()) / fields;
}

}  // namespace dynemb
