// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/scratch_memory.h: scratch of an operation, aligned as XLA's, with rubbish in it.
#pragma once

#include <memory>
#include <vector>

#include "cuda/launch.h"
#include "tests/core/test_table.h"

namespace dynemb::testing {

class ScratchMemory {
 public:
  explicit ScratchMemory(size_t bytes)
      : memory_(bytes + cuda::kScratchAlignment, '\x5a'), first_(memory_.data()) {
    auto space = memory_.size();
    CHECK(std::align(cuda::kScratchAlignment, bytes, first_, space) != nullptr);
  }

  void* first() const { return first_; }

 private:
  std::vector<char> memory_;
  void* first_;
};

}  // namespace dynemb::testing
