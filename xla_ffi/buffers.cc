// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/buffers.cc: the operands and results of a call, read in order and checked.
#include "xla_ffi/buffers.h"

namespace dynemb {
namespace {

// Stands in for a buffer that could not be read.
XLA_FFI_Buffer const kNoBuffer = [] {
  XLA_FFI_Buffer buffer{};
  buffer.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
  buffer.dtype = XLA_FFI_DataType_U8;
  return buffer;
}();

}  // namespace

bool BufferReader::keep(std::string const& mistake) {
  if (!failed() && !mistake.empty()) message_ = std::string(op_) + ": " + mistake;
  return !failed();
}

ffi::AnyBuffer BufferReader::checked(char const* kind, BufferRule rule,
                                     ffi::AnyBuffer const& buffer) {
  auto const mistake = sizes_.check(rule, buffer);
  if (!mistake.empty()) {
    auto const of = what_ == nullptr ? "" : std::string(" of ") + what_ + std::to_string(number_);
    keep(std::string(kind) + " '" + name_of(rule) + "'" + of + " " + mistake);
  }
  return buffer;
}

ffi::AnyBuffer BufferReader::missing(char const* kind, BufferRule rule) {
  keep(std::string(kind) + " '" + name_of(rule) + "' is missing");
  return ffi::AnyBuffer(&kNoBuffer);
}

ffi::AnyBuffer BufferReader::next_arg(BufferRule rule) {
  auto const buffer = args_.get<ffi::AnyBuffer>(next_arg_++);
  return buffer.has_value() ? checked("operand", rule, *buffer) : missing("operand", rule);
}

ffi::AnyBuffer BufferReader::next_ret(BufferRule rule) {
  auto buffer = rets_.get<ffi::AnyBuffer>(next_ret_++);
  return buffer.has_value() ? checked("result", rule, **buffer) : missing("result", rule);
}

ffi::AnyBuffer BufferReader::next_aliased(BufferRule rule) {
  auto const in = next_arg(rule);
  auto const out = next_ret(rule);
  if (in.untyped_data() != out.untyped_data()) {
    keep(std::string("array '") + name_of(rule) +
         "' must be updated in place: pass it in input_output_aliases");
  }
  return in;
}

void BufferReader::pass_on() {
  auto const in = args_.get<ffi::AnyBuffer>(next_arg_++);
  auto out = rets_.get<ffi::AnyBuffer>(next_ret_++);
  expect(in.has_value() && out.has_value() && in->untyped_data() == (*out)->untyped_data(),
         "an array that passes through must be an operand and a result: pass it in "
         "input_output_aliases");
}

ffi::Error BufferReader::finish() {
  expect(next_arg_ == args_.size(), "too many operands");
  expect(next_ret_ == rets_.size(), "too many results");
  return failed() ? ffi::Error::InvalidArgument(message_) : ffi::Error::Success();
}

ValueType value_type_of(ffi::AnyBuffer const& buffer) {
  switch (buffer.element_type()) {
    case ffi::DataType::BF16:
      return ValueType::kBFloat16;
    case ffi::DataType::F16:
      return ValueType::kFloat16;
    default:
      return ValueType::kFloat32;
  }
}

}  // namespace dynemb
