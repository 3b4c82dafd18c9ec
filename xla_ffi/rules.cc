// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/rules.cc: the table of rules for buffers, and how a buffer is compared with its own.
#include "xla_ffi/rules.h"

#include <iterator>

#include "core/args.h"
#include "core/rule.h"
#include "core/tiers/tier_ref.h"
#include "xla_ffi/limits.h"

namespace dynemb {
namespace {

using Types = uint32_t;
enum Type : Types {
  kU8 = 1,
  kS32 = 2,
  kU32 = 4,
  kS64 = 8,
  kU64 = 16,
  kF32 = 32,
  kBF16 = 64,
  kF16 = 128,
  kNumbers = kF32 | kS32,
  kStates = kF32 | kBF16,
  kFloats = kF32 | kBF16 | kF16,
  kIntegers = kS32 | kU32 | kS64 | kU64,
};

struct NamedType {
  Type type;
  ffi::DataType dtype;
  char const* name;
};

constexpr NamedType kTypes[] = {
    {kU8, ffi::DataType::U8, "uint8"},        {kS32, ffi::DataType::S32, "int32"},
    {kU32, ffi::DataType::U32, "uint32"},     {kS64, ffi::DataType::S64, "int64"},
    {kU64, ffi::DataType::U64, "uint64"},     {kF32, ffi::DataType::F32, "float32"},
    {kBF16, ffi::DataType::BF16, "bfloat16"}, {kF16, ffi::DataType::F16, "float16"},
};

struct NamedSize {
  char const* name;
  int64_t least, most;
};

// The order is that of Size.
constexpr NamedSize kSizes[kNumSizes] = {
    {"buckets", 1, kMostBytes / kBucketBytes},
    {"slots", 1, kMostBytes},
    {"dim", 1, kMostDim},
    {"rows", 1, kMostInt32},
    {"ids", 0, kMostInt32},
    {"bags", 0, kMostInt32},
    {"bags + 1", 1, kMostInt32},
    {"tables", 0, kMaxTables},
    {"elements", 0, kMostBytes},
    {"n", 0, kMostInt32},
    {"ids of the table", 0, kMostInt32},
    {"128 * buckets", 0, kMostInt32},
    {"segments + 1", 1, kMostInt32},
    {"bytes", 0, kMostBytes},
    {"bags", 0, kMostInt32 - 1},
    {"prefixes", 0, kMostInt32 - 1},
    {"suffixes", 0, kMostInt32},
    {"m * k", 1, kMostInt32},
    {"k * n", 1, kMostInt32},
    {"m * n", 1, kMostInt32},
    {"words", 4, kMostInt32},
    {"bytes of a row", 1, kMostInt32},
    {"slots", 1, kMostInt32},
    {"frames of a bucket", 1, kMostFrames},
    {"words of a record", 4, kMostInt32},
    {"rows", 1, kMostInt32},
    {"spill rows", 1, kMostInt32},
    {"1 + keys of a ring", 2, kMostInt32},
    {"1 + rows of a ring", 2, kMostInt32},
    {"rows of a ring", 1, kMostInt32},
};

// What a buffer may be.
struct Form {
  Types types;  // 0: no form
  int32_t rank;
  int32_t shape[3];  // of Size, or a number
};

struct NamedBuffer {
  BufferRule rule;
  char const* name;
  Form forms[2];
};

constexpr int32_t kBucketWords = kBucketBytes / 4;
constexpr int32_t kStampWords = sizeof(Stamp) / 4;
constexpr int32_t kCustomizedBucketWords = (kBucketBytes + kCustomScoreBytes) / 4;

// The order is that of BufferRule.
constexpr NamedBuffer kBuffers[] = {
    {BufferRule::kIndex,
     "index",
     {{kU32, 2, {kBuckets, kBucketWords}}, {kU32, 2, {kBuckets, kCustomizedBucketWords}}}},
    {BufferRule::kValues, "values", {{kFloats, 2, {kArraySlots, kDim}}, {}}},
    {BufferRule::kPackedValues, "packed values", {{kU8, 2, {kArraySlots, kRowBytes}}, {}}},
    {BufferRule::kState,
     "optimizer state",
     {{kStates, 2, {kArraySlots, kDim}}, {kNumbers, 1, {kArraySlots}}}},
    {BufferRule::kCounters, "counters", {{kU32, 3, {kCounterRows, kNumCounters, 2}}, {}}},
    {BufferRule::kSketch, "sketch", {{kU32, 2, {kBuckets, kSketchWords}}, {}}},
    {BufferRule::kRings, "removed keys", {{kU32, 3, {kCounterRows, kRingWords, 2}}, {}}},
    {BufferRule::kGiven, "scores", {{kU32, 2, {kNumTables, 2}}, {}}},
    {BufferRule::kStamps, "stamps", {{kU32, 2, {kNumTables, kStampWords}}, {}}},
    {BufferRule::kHyper, "hyper-parameters", {{kF32, 2, {kNumTables, kNumHyperParameters}}, {}}},
    {BufferRule::kAnyHyper, "hyper-parameters", {{kF32, 2, {kNumTables, kNumAnyHyper}}, {}}},
    {BufferRule::kIds, "ids", {{kIntegers, 1, {kNumIds}}, {kU32, 2, {kNumIds, 2}}}},
    {BufferRule::kSharedIds, "shared ids", {{kU32, 2, {kElements, 2}}, {}}},
    {BufferRule::kPairs, "ids", {{kU32, 2, {kNumIds, 2}}, {}}},
    {BufferRule::kOffsets, "offsets", {{kS32, 1, {kNumOffsets}}, {}}},
    {BufferRule::kWeights, "weights", {{kF32, 1, {kNumIds}}, {}}},
    {BufferRule::kUses, "uses", {{kU32, 1, {kNumIds}}, {kU32, 2, {3, kNumIds}}}},
    {BufferRule::kRows, "rows", {{kFloats, 2, {kNumBags, kDim}}, {}}},
    {BufferRule::kSharedRows, "shared rows", {{kFloats, 1, {kElements}}, {}}},
    {BufferRule::kGradients, "gradients", {{kFloats, 2, {kNumBags, kDim}}, {}}},
    {BufferRule::kSharedGradients, "shared gradients", {{kFloats, 1, {kElements}}, {}}},
    {BufferRule::kSlots, "slots", {{kS32, 1, {kNumIds}}, {}}},
    {BufferRule::kSharedSlots, "shared slots", {{kS32, 1, {kElements}}, {}}},
    {BufferRule::kScale, "scale", {{kF32, 1, {kNumBags}}, {}}},
    {BufferRule::kUniqueSlots, "unique slots", {{kS32, 1, {kNumUnique}}, {}}},
    {BufferRule::kRowGradients, "row gradients", {{kF32, 2, {kNumUnique, kDim}}, {}}},
    {BufferRule::kSlotsOfRows, "slots", {{kS32, 1, {kNumSlots}}, {}}},
    {BufferRule::kRowValues, "row values", {{kF32, 2, {kNumSlots, kDim}}, {}}},
    {BufferRule::kRowState, "row states", {{kF32, 2, {kNumSlots, kDim}}, {}}},
    {BufferRule::kRowNumber, "row states", {{kNumbers, 1, {kNumSlots}}, {kF32, 2, {kNumSlots, 1}}}},
    {BufferRule::kRowScores, "row scores", {{kU32, 2, {kNumSlots, 2}}, {}}},
    {BufferRule::kFirstBucket, "first bucket", {{kS32, 1, {1}}, {}}},
    {BufferRule::kMinScore, "minimum score", {{kU32, 1, {2}}, {}}},
    {BufferRule::kKeys, "keys", {{kU32, 2, {kRoom, 2}}, {}}},
    {BufferRule::kScores, "scores", {{kU32, 2, {kRoom, 2}}, {}}},
    {BufferRule::kExportedSlots, "slots", {{kS32, 1, {kRoom}}, {}}},
    {BufferRule::kCount, "count", {{kS32, 1, {1}}, {}}},
    {BufferRule::kRuleNumbers, "rule", {{kU32, 1, {kNumRuleWords}}, {}}},
    {BufferRule::kNorms, "norms", {{kF32, 1, {kNumSlots}}, {}}},
    {BufferRule::kBins, "bins", {{kU32, 1, {kNumCountWords}}, {}}},
    {BufferRule::kRemoved, "removed", {{kU32, 1, {1}}, {}}},
    {BufferRule::kFactor, "factor", {{kF32, 1, {1}}, {}}},
    {BufferRule::kUniqueOf, "unique_of", {{kS32, 1, {kNumIds}}, {}}},
    {BufferRule::kFirst, "first", {{kS32, 1, {kNumIds}}, {}}},
    {BufferRule::kStarts, "starts", {{kS32, 1, {kNumStarts}}, {}}},
    {BufferRule::kBagLengths, "lengths", {{kIntegers, 1, {kLengths}}, {}}},
    {BufferRule::kMadeOffsets, "offsets", {{kS32, 1, {kNumOffsets}}, {}}},
    {BufferRule::kMalformed, "malformed", {{kU32, 1, {1}}, {}}},
    {BufferRule::kNumbers, "numbers", {{kU32, 1, {kNumIds}}, {}}},
    {BufferRule::kInverse, "inverse", {{kS32, 1, {kNumIds}}, {}}},
    {BufferRule::kRanks, "ranks", {{kS32, 1, {kNumIds}}, {}}},
    {BufferRule::kPositions, "positions", {{kS32, 1, {kNumIds}}, {}}},
    {BufferRule::kPrefix, "prefix", {{kStates, 2, {kNumSegments, kPrefixWidth}}, {}}},
    {BufferRule::kSuffix, "suffix", {{kStates, 2, {kNumSuffixes, kSuffixWidth}}, {}}},
    {BufferRule::kOfSuffix, "of_suffix", {{kS32, 1, {kNumIds}}, {}}},
    {BufferRule::kPairRows, "rows", {{kStates, 2, {kNumIds, kPairWidth}}, {}}},
    {BufferRule::kLocation, "location", {{kS32, 1, {kTierSlots}}, {}}},
    {BufferRule::kOwners, "owners", {{kU32, 2, {kBuckets, kFrames}}, {}}},
    {BufferRule::kTierCounters, "tier counters", {{kU32, 3, {kTierRows, kNumTierCounters, 2}}, {}}},
    {BufferRule::kHomes, "homes", {{kU32, 2, {kTierSlots, kRecordWords}}, {}}},
    {BufferRule::kRing, "departed rows", {{kU32, 2, {kRingRows, kDepartureWords}}, {}}},
    {BufferRule::kDepartedRecords, "departed records", {{kU32, 2, {kRingRoom, kRecordWords}}, {}}},
    {BufferRule::kKeysOfSlots, "ids", {{kU32, 2, {kNumSlots, 2}}, {}}},
    {BufferRule::kRowKeys, "keys of rows", {{kU32, 2, {kArraySlots, 2}}, {}}},
    {BufferRule::kRound, "round", {{kS32, 1, {1}}, {}}},
    {BufferRule::kSpilled, "spilled", {{kS32, 1, {kSpillRows}}, {}}},
    {BufferRule::kRowNumbers, "rows", {{kS32, 1, {kNumSlots}}, {}}},
    {BufferRule::kListCounts, "counts", {{kS32, 1, {2}}, {}}},
    {BufferRule::kDone, "done", {{kU32, 1, {1}}, {}}},
    {BufferRule::kWork, "work", {{kU32, 0, {}}, {}}},
    {BufferRule::kScratch, "scratch", {{kU8, 1, {kBytes}}, {}}},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kBuffers); ++i) {
    if (static_cast<size_t>(kBuffers[i].rule) != i) return false;
  }
  return std::size(kBuffers) == static_cast<size_t>(BufferRule::kNumBufferRules);
}
static_assert(in_order(), "a rule for every name");

NamedBuffer const& of(BufferRule rule) { return kBuffers[static_cast<size_t>(rule)]; }

Types type_of(ffi::DataType dtype) {
  for (auto const& each : kTypes) {
    if (each.dtype == dtype) return each.type;
  }
  return 0;
}

std::string spelled_types(Types types) {
  std::string result;
  for (auto const& each : kTypes) {
    if ((types & each.type) != 0) result += (result.empty() ? "" : "|") + std::string(each.name);
  }
  return result.empty() ? "another type" : result;
}

std::string spelled(ffi::AnyBuffer const& buffer) {
  auto result = spelled_types(type_of(buffer.element_type())) + "[";
  auto const dims = buffer.dimensions();
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    result += (axis > 0 ? ", " : "") + std::to_string(dims[axis]);
  }
  return result + "]";
}

}  // namespace

char const* name_of(BufferRule rule) { return of(rule).name; }

bool Sizes::fits(int32_t size, int64_t found) const {
  if (size >= 0) return found == size;
  auto const known = values_[-size - 1];
  auto const& range = kSizes[-size - 1];
  return found >= range.least && found <= range.most && (known == kUnknown || found == known);
}

std::string Sizes::spelled(int32_t size) const {
  if (size >= 0) return std::to_string(size);
  auto const known = values_[-size - 1];
  auto const& range = kSizes[-size - 1];
  if (known != kUnknown) return std::string(range.name) + " = " + std::to_string(known);
  return std::string(range.name) + " from " + std::to_string(range.least) + " to " +
         std::to_string(range.most);
}

std::string Sizes::spelled(BufferRule rule) const {
  std::string result;
  for (auto const& form : of(rule).forms) {
    if (form.types == 0) continue;
    result += (result.empty() ? "" : ", or ") + spelled_types(form.types) + "[";
    for (int32_t axis = 0; axis < form.rank; ++axis) {
      result += (axis > 0 ? ", " : "") + spelled(form.shape[axis]);
    }
    result += "]";
  }
  return result;
}

// Of most calls all buffers fit: no string is made before one does not.
std::string Sizes::check(BufferRule rule, ffi::AnyBuffer const& buffer) {
  auto const dims = buffer.dimensions();
  auto const type = type_of(buffer.element_type());
  for (auto const& form : of(rule).forms) {
    auto matches = (form.types & type) != 0 && dims.size() == static_cast<size_t>(form.rank);
    for (int32_t axis = 0; matches && axis < form.rank; ++axis) {
      matches = fits(form.shape[axis], dims[size_t(axis)]);
    }
    if (!matches) continue;
    for (int32_t axis = 0; axis < form.rank; ++axis) {
      if (form.shape[axis] < 0) set(static_cast<Size>(form.shape[axis]), dims[size_t(axis)]);
    }
    return "";
  }
  return "must be " + spelled(rule) + ", not " + dynemb::spelled(buffer);
}

}  // namespace dynemb
