// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/records.cc: the tables of rules for numbers, and how a record is compared with its own.
#include "xla_ffi/records.h"

#include <iterator>
#include <limits>

#include "core/args.h"
#include "xla_ffi/limits.h"
#include "xla_ffi/schema.h"

namespace dynemb {
namespace {

struct NumberRule {
  char const* name;
  int64_t least, most;
};

constexpr int64_t kLeastInt64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kMostInt64 = std::numeric_limits<int64_t>::max();

// The order is that of TableField.
constexpr NumberRule kTableRules[] = {
    {"num_states", 0, kMaxStates},
    {"num_buckets", 1, (int64_t{1} << 32) - 1},
    {"policy", 0, static_cast<int64_t>(ScorePolicy::kDecayingLfu)},
    {"evicts", 0, kCompetes},
    {"initializer", 0, static_cast<int64_t>(InitializerKind::kGiven)},
    {"eval_initializer", 0, static_cast<int64_t>(InitializerKind::kGiven)},
    {"optimizer", 0, static_cast<int64_t>(OptimizerKind::kNumKinds) - 1},
    {"shares", 0, 1},
    {"first_bucket", 0, kMostBytes / kBucketBytes},
    {"local_buckets", 1, kMostBuckets},
    {"first_row", 0, kMostInt32},
    {"counter_rows", 0, kMostInt32},
    {"skips_nonfinite", 0, 1},
    {"hash_seed", kLeastInt64, kMostInt64},
    {"rounding", 0, 1},
    {"keeps_scores", 0, 1},
    {"admission", 0, static_cast<int64_t>(AdmissionRule::kLookups)},
    {"threshold", 0, (int64_t{1} << 32) - 1},
    {"sketch_words", 0, (1 << 16) - 1},
    {"sketch_bits", 0, 16},
    {"ring_size", 0, kMostInt32 - 1},
    {"keep_for", 0, kMostInt64},
    {"part", 0, kRowsPart},
    {"halflife", 0, kMostInt32},
    {"takes_given", 0, 1},
    {"departed_rows", 0, kMostInt32 - 1},
};
static_assert(std::size(kTableRules) == kNumTableFields);

// The order is that of RowsField.
#define DYNEMB_ROWS_RULES                                                      \
  {"array", -1, kMaxFeatures}, {"passed_on", 0, 1}, {"offset", 0, kMostBytes}, \
      {"group", 0, kMostInt32}, {                                              \
    "stride", 0, kMostBytes                                                    \
  }

// The order is that of FeatureField.
constexpr NumberRule kFeatureRules[] = {
    {"table", 0, kMaxTables - 1},        {"pooling", 0, static_cast<int64_t>(Pooling::kUnstored)},
    {"bag_size", 0, kMostInt32},         {"has_weights", 0, 1},
    {"has_uses", 0, 2 * kMostInt32 + 1}, DYNEMB_ROWS_RULES,
};
static_assert(std::size(kFeatureRules) == kNumFeatureFields);

// The order is that of SumsField.
constexpr NumberRule kSumsRules[] = {
    {"groups", 0, kMostInt32},
    {"dim", 1, kMostDim},
    DYNEMB_ROWS_RULES,
};
static_assert(std::size(kSumsRules) == kNumSumsFields);
#undef DYNEMB_ROWS_RULES

// The order is that of PartField.
constexpr NumberRule kPartRules[] = {
    {"size", 0, kMostInt32},
    {"first", 0, kMostInt32},
    {"owners", 1, kMostInt32},
    {"hash_seed", kLeastInt64, kMostInt64},
    {"num_buckets", 0, (int64_t{1} << 32) - 1},
    {"local_buckets", 1, kMostBuckets},
};
static_assert(std::size(kPartRules) == kNumPartFields);

// The order is that of PackedField.
constexpr NumberRule kPackedRules[] = {
    {"code", 0, static_cast<int64_t>(RowCode::kNumCodes) - 1},
    {"dim", 1, kMostDim},
    {"value_type", 0, static_cast<int64_t>(ValueType::kFloat16)},
};
static_assert(std::size(kPackedRules) == kNumPackedFields);

struct NamedRecord {
  char const* name;
  NumberRule const* rules;
  size_t count;
};

// The order is that of RecordRule.
constexpr NamedRecord kRecords[] = {
    {"tables", kTableRules, std::size(kTableRules)},
    {"features", kFeatureRules, std::size(kFeatureRules)},
    {"sums", kSumsRules, std::size(kSumsRules)},
    {"parts", kPartRules, std::size(kPartRules)},
    {"packed", kPackedRules, std::size(kPackedRules)},
};

}  // namespace

std::string check_records(RecordRule rule, ffi::Span<int64_t const> numbers) {
  auto const& record = kRecords[static_cast<size_t>(rule)];
  auto const attribute = "attribute '" + std::string(record.name) + "'";
  if (numbers.size() % record.count != 0) {
    return attribute + " must have " + std::to_string(record.count) + " numbers for each, not " +
           std::to_string(numbers.size()) + " in all";
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    auto const& [name, least, most] = record.rules[i % record.count];
    if (numbers[i] >= least && numbers[i] <= most) continue;
    return attribute + ": " + name + " must be from " + std::to_string(least) + " to " +
           std::to_string(most) + ", not " + std::to_string(numbers[i]);
  }
  return "";
}

}  // namespace dynemb
