// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/buffer.cc: the blocks that are kept between calls.
#include "cpu/loops/buffer.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

namespace dynemb::cpu {
namespace {

constexpr size_t kMostKept = 64;  // two for each thread that does tables of its own

struct Kept {
  void* data;
  size_t bytes;
};

struct Shelf {
  std::mutex mutex;
  std::vector<Kept> blocks;  // the smallest first
};

// Never destroyed: threads of a pool may outlive static objects.
Shelf& shelf() {
  static auto* const it = new Shelf;
  return *it;
}

bool smaller(Kept const& a, Kept const& b) { return a.bytes < b.bytes; }

}  // namespace

Block::Block(size_t bytes) : data_(nullptr), bytes_(bytes) {
  auto& [mutex, blocks] = shelf();
  {
    std::lock_guard<std::mutex> const lock(mutex);
    auto const found =
        std::lower_bound(blocks.begin(), blocks.end(), Kept{nullptr, bytes}, smaller);
    if (found != blocks.end()) {
      data_ = found->data;
      bytes_ = found->bytes;
      blocks.erase(found);
      return;
    }
  }
  data_ = ::operator new(bytes_);
}

Block::~Block() {
  auto& [mutex, blocks] = shelf();
  Kept out{data_, bytes_};
  {
    std::lock_guard<std::mutex> const lock(mutex);
    blocks.insert(std::upper_bound(blocks.begin(), blocks.end(), out, smaller), out);
    if (blocks.size() <= kMostKept) return;
    out = blocks.front();
    blocks.erase(blocks.begin());
  }
  ::operator delete(out.data);
}

}  // namespace dynemb::cpu
