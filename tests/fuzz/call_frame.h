// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/call_frame.h: calls of handlers without XLA: arrays, attributes, and the frame that a
// handler reads them from. Every array has memory of its own, no byte longer than its shape says,
// so that a sanitizer sees what reads or writes past either end.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "xla/ffi/api/c_api.h"
#include "xla_ffi/handlers.h"

namespace dynemb::fuzz {

struct Array {
  XLA_FFI_DataType dtype = XLA_FFI_DataType_U8;
  std::vector<int64_t> dims;
  std::shared_ptr<void> memory;

  Array() = default;
  Array(XLA_FFI_DataType type, std::vector<int64_t> shape) : dtype(type), dims(std::move(shape)) {
    void* address = nullptr;
    if (posix_memalign(&address, 64, bytes()) != 0) std::abort();
    memset(address, 0xcc, bytes());
    memory = std::shared_ptr<void>(address, &free);
  }

  int64_t count() const {
    int64_t product = 1;
    for (auto const dim : dims) product *= dim;
    return product;
  }
  size_t bytes() const { return static_cast<size_t>(count()) * width(dtype); }

  template <class T>
  T* data() const {
    return static_cast<T*>(memory.get());
  }

  // The copy has memory of its own.
  Array copy() const {
    Array other(dtype, dims);
    memcpy(other.memory.get(), memory.get(), bytes());
    return other;
  }

  // Rows [begin, begin + count) in the same memory.
  Array part(int64_t begin, int64_t count_of_rows) const {
    Array some = *this;
    some.dims[0] = count_of_rows;
    auto const row = dims[0] == 0 ? 0 : bytes() / static_cast<size_t>(dims[0]);
    some.memory = std::shared_ptr<void>(memory, data<char>() + static_cast<size_t>(begin) * row);
    return some;
  }

  // Returns another type or shape with as many of the same bytes as fit.
  Array as(XLA_FFI_DataType type, std::vector<int64_t> shape) const {
    Array other(type, std::move(shape));
    memcpy(other.memory.get(), memory.get(), std::min(bytes(), other.bytes()));
    return other;
  }

  static size_t width(XLA_FFI_DataType type) {
    switch (type) {
      case XLA_FFI_DataType_S16:
      case XLA_FFI_DataType_F16:
      case XLA_FFI_DataType_BF16:
        return 2;
      case XLA_FFI_DataType_S32:
      case XLA_FFI_DataType_U32:
      case XLA_FFI_DataType_F32:
        return 4;
      case XLA_FFI_DataType_S64:
      case XLA_FFI_DataType_U64:
      case XLA_FFI_DataType_F64:
        return 8;
      default:
        return 1;
    }
  }
};

struct Attribute {
  std::string name;
  bool is_list = true;
  std::vector<int64_t> integers;
  std::vector<float> floats;  // a list of these, if there are no integers and `is_float`
  bool is_float = false;
};

struct Call {
  std::string op;
  std::vector<Array> operands, results;  // an aliased one is in both, with the same memory
  std::vector<Attribute> attributes;     // in order of name
  int64_t num_threads = 1;
  // Compares what the call has written with what it should be; empty if that is not known.
  std::function<void()> check;

  void aliased(Array const& array) {
    operands.push_back(array);
    results.push_back(array);
  }
  Array operand(XLA_FFI_DataType dtype, std::vector<int64_t> dims) {
    return operands.emplace_back(dtype, std::move(dims));
  }
  Array result(XLA_FFI_DataType dtype, std::vector<int64_t> dims) {
    return results.emplace_back(dtype, std::move(dims));
  }
};

// Runs the handler. Returns the message of its error, or nothing.
std::optional<std::string> run(Call const& call);

}  // namespace dynemb::fuzz
