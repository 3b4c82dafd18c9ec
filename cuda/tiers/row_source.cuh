// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/row_source.cuh: where the row of a slot is read: in a frame, in its home record, or
// nowhere, since its values are initial ones.
#pragma once

#include <cstdint>

#include "core/slot.h"
#include "core/tiers/record.h"
#include "core/tiers/tier_args.h"
#include "cuda/grid/initial_rows.cuh"
#include "cuda/grid/row_format.cuh"

namespace dynemb::cuda {

// An address, or a reason for having none. One word, so that lanes can hand it over.
struct RowSource {
  static constexpr uint64_t kPadding = 0;  // reads zeros
  static constexpr uint64_t kMissing = 1;  // an id without a slot
  static constexpr uint64_t kFresh = 2;    // a slot whose row lies nowhere yet
  static constexpr uint64_t kMet = 3;      // the same, but an earlier lookup returned the row

  uint64_t word;

  __device__ __forceinline__ bool is_row() const { return word > kMet; }
  __device__ __forceinline__ bool is_initial() const { return word - kMissing <= kMet - kMissing; }
  // Is it added up behind the rows that there are? A find looks at a fresh row as at any other.
  __device__ __forceinline__ bool is_last(bool serves) const {
    return word == kMissing || (word == kFresh && !serves);
  }
  __device__ __forceinline__ char const* row() const { return reinterpret_cast<char const*>(word); }
};

// What the rows of a table are read from.
struct RowSources : TierRowsTable {
  bool serves;
};

__device__ __forceinline__ RowSource source_of(RowSources const& args, int32_t slot) {
  if (slot == kPaddingSlot) return {RowSource::kPadding};
  if (slot < 0) return {RowSource::kMissing};
  if (!is_live(slot, static_cast<uint32_t>(args.table.local_buckets * kBucketCapacity))) {
    return {RowSource::kPadding};
  }
  auto const location = args.tier.location[slot];
  if (is_fresh_location(location)) {
    return {location == kMetLocation ? RowSource::kMet : RowSource::kFresh};
  }
  auto const row = cached_row(args.tier, slot);
  if (row >= 0 && !args.serves && (args.tier.owners[row] & kNewFrame) != 0) {
    return {RowSource::kFresh};
  }
  auto const* const from =
      row >= 0 ? static_cast<char const*>(args.table.values) + row * row_bytes_of(args.table)
               : reinterpret_cast<char const*>(args.tier.homes) + slot * args.tier.record_bytes;
  return {reinterpret_cast<uint64_t>(from)};
}

__device__ __forceinline__ bool is_at_home(RowSources const& args, RowSource const& source) {
  auto const slots = static_cast<uint64_t>(args.table.local_buckets) * kBucketCapacity;
  auto const bytes = slots * static_cast<uint64_t>(args.tier.record_bytes);
  return source.word - reinterpret_cast<uint64_t>(args.tier.homes) < bytes;
}

// Draws four columns of an initial row.
template <class Format>
__device__ __forceinline__ float4 draw_initial(RowSources const& args, Format format,
                                               RowSource const& source, Key key, int32_t column) {
  auto const missing = source.word == RowSource::kMissing;
  Key const keys[1] = {key};
  float4 values[1];
  RowDrawer(args.table, missing ? args.missing : args.table.initializer)
      .draw(format, keys, column, values);
  return values[0];
}

}  // namespace dynemb::cuda
