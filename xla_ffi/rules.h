// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/rules.h: what every buffer of a call must be, in one table.
//
// A kernel trusts its pointers and sizes, so a handler compares all of them before the first byte
// is touched. A rule names the sizes of a buffer: the first buffer that has a size gives its value,
// and every later one must agree. So the relations between buffers are the names that they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/table_ref.h"
#include "xla/ffi/api/ffi.h"

namespace dynemb {

namespace ffi = xla::ffi;

// Sizes that buffers of a call have in common. Positive numbers are sizes themselves.
enum Size : int32_t {
  kBuckets = -1,  // of the arrays of a table
  kArraySlots = -2,
  kDim = -3,
  kCounterRows = -4,
  kNumIds = -5,
  kNumBags = -6,
  kNumOffsets = -7,
  kNumTables = -8,
  kElements = -9,  // of an array that several features share
  kNumSlots = -10,
  kNumUnique = -11,  // places for the sums of a table's rows
  kRoom = -12,       // places for exported rows
  kNumStarts = -13,
  kBytes = -14,
  kLengths = -15,
  kNumSegments = -16,
  kNumSuffixes = -17,
  kPrefixWidth = -18,
  kSuffixWidth = -19,
  kPairWidth = -20,  // of a row that is a product
  kSketchWords = -21,
  kRowBytes = -22,  // of a packed row
  kTierSlots = -23,
  kFrames = -24,  // of a bucket
  kRecordWords = -25,
  kTierRows = -26,  // of the counters of a tier
  kSpillRows = -27,
  kRingWords = -28,  // of a ring of removed keys, 64 bits each
  kRingRows = -29,   // of a ring of departed rows, its header included
  kRingRoom = -30,   // of a ring of departed rows
};
constexpr int kNumSizes = 30;

enum class BufferRule : int32_t {
  kIndex = 0,
  kValues,
  kPackedValues,
  kState,
  kCounters,
  kSketch,
  kRings,
  kGiven,
  kStamps,
  kHyper,
  kAnyHyper,
  kIds,
  kSharedIds,
  kPairs,  // ids as pairs of words only
  kOffsets,
  kWeights,
  kUses,
  kRows,
  kSharedRows,
  kGradients,
  kSharedGradients,
  kSlots,
  kSharedSlots,
  kScale,
  kUniqueSlots,
  kRowGradients,
  kSlotsOfRows,
  kRowValues,
  kRowState,
  kRowNumber,  // a state of one column
  kRowScores,
  kFirstBucket,
  kMinScore,
  kKeys,
  kScores,
  kExportedSlots,
  kCount,
  kRuleNumbers,
  kNorms,
  kBins,
  kRemoved,
  kFactor,
  kUniqueOf,
  kFirst,
  kStarts,
  kBagLengths,
  kMadeOffsets,
  kMalformed,
  kNumbers,
  kInverse,
  kRanks,
  kPositions,
  kPrefix,
  kSuffix,
  kOfSuffix,
  kPairRows,
  kLocation,
  kOwners,
  kTierCounters,
  kHomes,
  kRing,
  kDepartedRecords,
  kKeysOfSlots,
  kRowKeys,  // of a rows part that is rounded stochastically
  kRound,
  kSpilled,
  kRowNumbers,
  kListCounts,
  kDone,
  kWork,
  kScratch,
  kNumBufferRules
};

// The sizes of one call, as far as they are known.
class Sizes {
 public:
  Sizes() {
    for (auto& value : values_) value = kUnknown;
  }
  void set(Size size, int64_t value) { values_[-size - 1] = value; }
  bool knows(Size size) const { return get(size) != kUnknown; }
  int64_t get(Size size) const { return values_[-size - 1]; }
  template <class... More>
  void forget(More... sizes) {
    (set(sizes, kUnknown), ...);
  }
  // Empty if the buffer is what the rule says, and then its sizes are known; else what it should
  // have been, and what it is.
  std::string check(BufferRule rule, ffi::AnyBuffer const& buffer);

 private:
  static constexpr int64_t kUnknown = -1;

  bool fits(int32_t size, int64_t found) const;
  std::string spelled(int32_t size) const;
  std::string spelled(BufferRule rule) const;

  int64_t values_[kNumSizes];
};

char const* name_of(BufferRule rule);

}  // namespace dynemb
