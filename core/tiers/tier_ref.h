// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/tiers/tier_ref.h: where the rows of a tiered table lie (docs/decisions/tiers.md).
//
// Every slot has a home record in host memory. Every bucket has a few frames in device memory, and
// `location` says of each slot whether one of them holds its row. Rows of the arrays `values` and
// `states` are first the frames, bucket by bucket, then `spill_rows` more, which hold rows on their
// way home, or rows without a frame during an update.
#pragma once

#include <cstdint>

#include "core/atomic.h"
#include "core/macros.h"
#include "core/table_ref.h"

namespace dynemb {

constexpr int kMostFrames = 64;  // of a bucket

// What `location` says of a slot: 0, at home; 1 to F, in the frame of that number, counted from 1;
// or one of three numbers of fresh rows. Any other number is one that no call writes, and means
// home.
//
// Fresh: the row has its initial values, and lies nowhere. A lookup writes kFreshLocation as if it
// were the initial value of an optimizer state of the new row: the bits of 1.0f. On a GPU a
// promotion without a frame for the row makes kSeenLocation of that, and the next one that meets
// the row kMetLocation. Lookups of a GPU add up new rows behind all others
// (cuda/lookup/bag_pooler.cuh), and a row that was met is not new.
constexpr uint32_t kHomeLocation = 0;
constexpr uint32_t kFreshLocation = 0x3f800000u;
constexpr uint32_t kSeenLocation = kFreshLocation + 1;
constexpr uint32_t kMetLocation = kFreshLocation + 2;

// What `owners` says of a frame: the place in its bucket of the slot that owns it, whether the
// frame is newer than the home record, and, within a promotion only, that the frame is taken.
// A frame is owned only if the location of that slot says so too: all else is an empty frame.
constexpr uint32_t kOwnerMask = 0x7fu;
constexpr uint32_t kTakenFrame = 0x40000000u;  // 0 between calls
constexpr uint32_t kDirtyFrame = 0x80000000u;
// On a GPU: the frame was given to a fresh row, and no promotion has met that row since.
constexpr uint32_t kNewFrame = 0x20000000u;

// Places in a row of the counters of a tier, 64 bits each; a row for each shard that the table may
// be cut into, of which a shard counts in its first.
enum TierCounter : int32_t {
  kTierHits = 0,     // ids of lookups whose row had a frame
  kTierMisses,       // ids of lookups whose row was at home, or new
  kTierPromoted,     // rows that a lookup brought into a frame
  kTierPrefetched,   // rows that a prefetch brought into a frame
  kTierBypassed,     // rows that a lookup or a prefetch found no frame for
  kTierWrittenBack,  // records written home
  kTierUpdatedHome,  // rows updated without a frame
  kTierDeparted,     // rows that were evicted to its ring
  kTierRingFull,     // claims that were refused since the ring was full
  kTierHeld,         // ids whose row was held
  kNumTierCounters
};

struct TierRef {
  uint32_t* location;    // [slots]
  uint32_t* owners;      // [local_buckets, frames]
  uint64_t* counters;    // [rows, kNumTierCounters], or null
  uint8_t const* homes;  // [slots, record_bytes], in host memory
  int64_t record_bytes;  // a multiple of 16
  int32_t frames;        // of a bucket, 1 to kMostFrames
  int32_t spill_rows;    // 1 or more
};

DYNEMB_HD void count_in_tier(TierRef const& tier, TierCounter counter, uint64_t events) {
  if (events != 0 && tier.counters != nullptr) fetch_add(tier.counters + counter, events);
}

DYNEMB_HD int64_t frame_row(TierRef const& tier, int64_t bucket, int frame) {
  return bucket * tier.frames + frame;
}

DYNEMB_HD int64_t first_spill_row(TierRef const& tier, TableRef const& table) {
  return table.local_buckets * tier.frames;
}

// The frame that holds what a slot had when its location was `location`, or -1.
DYNEMB_HD int frame_of(TierRef const& tier, int32_t slot, uint32_t location) {
  if (location - 1 >= static_cast<uint32_t>(tier.frames)) return -1;
  auto const frame = static_cast<int>(location - 1);
  auto const row = int64_t{slot} / kBucketCapacity * tier.frames + frame;
  auto const owner = atomic_load(tier.owners + row);  // others may set bits above it
  auto const in_bucket = static_cast<uint32_t>(slot % kBucketCapacity);
  return (owner & kOwnerMask) == in_bucket ? frame : -1;
}

// The frame that holds the row of a live slot, or -1.
DYNEMB_HD int frame_of(TierRef const& tier, int32_t slot) {
  return frame_of(tier, slot, tier.location[slot]);
}

// The row of the arrays that holds the row of a live slot, or -1: then it is fresh or at home.
DYNEMB_HD int64_t cached_row(TierRef const& tier, int32_t slot) {
  auto const frame = frame_of(tier, slot);
  return frame < 0 ? -1 : frame_row(tier, slot / kBucketCapacity, frame);
}

DYNEMB_HD bool is_fresh_location(uint32_t location) {
  return location - kFreshLocation <= kMetLocation - kFreshLocation;
}

DYNEMB_HD bool is_fresh(TierRef const& tier, int32_t slot) {
  return is_fresh_location(tier.location[slot]);
}

// The slot that owns a frame, or -1 where the frame is empty.
DYNEMB_HD int32_t owner_of(TierRef const& tier, int64_t bucket, int frame) {
  auto const owner = tier.owners[bucket * tier.frames + frame] & kOwnerMask;
  auto const slot = bucket * kBucketCapacity + owner;
  auto const owns = tier.location[slot] == static_cast<uint32_t>(frame) + 1;
  return owns ? static_cast<int32_t>(slot) : -1;
}

// A frame of a bucket that a promotion may reassign. Those that go first stand first: empty ones,
// then those whose owner has the lowest score.
struct FrameChoice {
  int32_t owner;   // its slot, or -1
  uint64_t score;  // of the owner
  int frame;
};

DYNEMB_HD bool goes_before(FrameChoice const& a, FrameChoice const& b) {
  auto const a_empty = a.owner < 0, b_empty = b.owner < 0;
  if (a_empty != b_empty) return a_empty;
  if (!a_empty && a.score != b.score) return a.score < b.score;
  return a.frame < b.frame;
}

}  // namespace dynemb
