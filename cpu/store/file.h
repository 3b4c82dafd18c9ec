// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/store/file.h: a file that is read and written at offsets, and what can go wrong with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

namespace dynemb::cpu::store {

// The content of a file is not what was written.
struct DamagedFile : std::exception {
  DamagedFile(std::string which, std::string what)
      : path(std::move(which)), problem(std::move(what)) {}
  char const* what() const noexcept override { return problem.c_str(); }
  std::string path, problem;
};

// The operating system refused a call.
struct FailedCall : std::exception {
  FailedCall(std::string which, int number) : path(std::move(which)), code(number) {}
  char const* what() const noexcept override { return path.c_str(); }
  std::string path;
  int code;
};

class File {
 public:
  static File create(std::string path);  // which must not exist
  static File open(std::string path);    // to read
  File(File&& other) noexcept;
  File(File const&) = delete;
  File& operator=(File const&) = delete;
  File& operator=(File&&) = delete;
  ~File();

  std::string const& path() const { return path_; }
  uint64_t size() const;

  // Returns how many bytes there were.
  size_t read_at(uint64_t offset, void* data, size_t size) const;
  void write_at(uint64_t offset, void const* data, size_t size) const;
  void truncate(uint64_t size) const noexcept;
  void sync() const;

 private:
  File(std::string path, int flags);
  std::string path_;
  int descriptor_;
};

}  // namespace dynemb::cpu::store
