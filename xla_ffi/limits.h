// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/limits.h: the largest sizes of a call.
#pragma once

#include <cstdint>
#include <limits>

namespace dynemb {

constexpr int64_t kMostInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostBytes = int64_t{1} << 48;
constexpr int64_t kMostDim = 4096;
constexpr int64_t kMostBuckets = (int64_t{1} << 24) - 8;  // of a shard: slots are int32
// A call has at most so many ids on a device. Positions are counted in 32 bits, two of which are
// flags on a GPU.
constexpr int64_t kMostIds = (int64_t{1} << 30) - 1;

}  // namespace dynemb
