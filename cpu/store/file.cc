// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "cpu/store/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace dynemb::cpu::store {

File::File(std::string path, int flags)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), flags | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) throw FailedCall(path_, errno);
}

File File::create(std::string path) { return {std::move(path), O_RDWR | O_CREAT | O_EXCL}; }

File File::open(std::string path) { return {std::move(path), O_RDONLY}; }

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

uint64_t File::size() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) throw FailedCall(path_, errno);
  return static_cast<uint64_t>(status.st_size);
}

size_t File::read_at(uint64_t offset, void* data, size_t size) const {
  size_t done = 0;
  while (done < size) {
    auto const got = ::pread(descriptor_, static_cast<char*>(data) + done, size - done,
                             static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw FailedCall(path_, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

void File::write_at(uint64_t offset, void const* data, size_t size) const {
  size_t done = 0;
  while (done < size) {
    auto const put = ::pwrite(descriptor_, static_cast<char const*>(data) + done, size - done,
                              static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) throw FailedCall(path_, put == 0 ? ENOSPC : errno);
    done += static_cast<size_t>(put);
  }
}

void File::truncate(uint64_t size) const noexcept {
  [[maybe_unused]] auto const failed = ::ftruncate(descriptor_, static_cast<off_t>(size));
}

void File::sync() const {
  if (::fsync(descriptor_) != 0) throw FailedCall(path_, errno);
}

}  // namespace dynemb::cpu::store
