// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/buffer.h: large arrays for the time of one call. Their memory is kept for the next
// call.
//
// A fresh array of a megabyte costs 250 page faults, more than the work that it is for.
#pragma once

#include <cstddef>
#include <type_traits>

namespace dynemb::cpu {

// Memory of at least `bytes` bytes, uninitialised: a kept block if there is one, else a new one.
class Block {
 public:
  explicit Block(size_t bytes);
  ~Block();  // keeps it for later, or frees it if enough are kept
  Block(Block const&) = delete;
  Block& operator=(Block const&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
  size_t bytes_;
};

// `count` uninitialised values.
template <class T>
class Buffer {
 public:
  static_assert(std::is_trivially_copyable_v<T>);
  explicit Buffer(size_t count) : block_(count * sizeof(T)) {}
  T* data() { return static_cast<T*>(block_.data()); }
  T const* data() const { return static_cast<T const*>(block_.data()); }
  T& operator[](size_t i) { return data()[i]; }
  T const& operator[](size_t i) const { return data()[i]; }

 private:
  Block block_;
};

}  // namespace dynemb::cpu
