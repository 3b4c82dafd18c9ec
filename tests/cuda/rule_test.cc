// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/rule_test.cc: a rule counts, removes and decays the same rows on a GPU as on a CPU,
// which Python's tests compare with dicts.
#include "cuda/table/rule.cu"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu/table_ops.h"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using dynemb::testing::random_at;
using dynemb::testing::TestTable;

constexpr int64_t kBuckets = 24;

// Few scores, so that many tie; scores of the future too, which a damaged file may have.
void fill(TableRef& table, uint64_t round) {
  table.counters[kClock] = 40;
  for (int64_t slot = 0; slot < kBuckets * kBucketCapacity; ++slot) {
    auto const random = random_at(round << 20 | static_cast<uint64_t>(slot));
    if (random % 8 < round % 8) continue;
    auto const clock = 1 + (random >> 8) % 42;
    auto const score = is_packed(table.policy) ? (random >> 20) % 6 << 32 | clock : clock;
    *entry_at(table, static_cast<int32_t>(slot)) = {random, score};
    if (table.policy == ScorePolicy::kCustomized) {
      *custom_score_at(table, static_cast<int32_t>(slot)) = (random >> 20) % 6;
    }
    *digest_at(table, static_cast<int32_t>(slot)) = digest_of(hash_key(random, table.hash));
    ++table.counters[kRows];
  }
}

void put_words(std::vector<uint32_t>& words, int at, uint64_t number) {
  words[static_cast<size_t>(at)] = static_cast<uint32_t>(number);
  words[static_cast<size_t>(at) + 1] = static_cast<uint32_t>(number >> 32);
}

std::vector<uint32_t> numbers_of(uint64_t round) {
  std::vector<uint32_t> words(kNumRuleWords);
  put_words(words, kUnusedForWord, random_at(round) % 40);
  put_words(words, kUnusedSinceWord, random_at(round + 1) % 45);
  words[kHighBelowWord] = static_cast<uint32_t>(random_at(round + 2) % 6);
  auto const norm = static_cast<float>(random_at(round + 3) % 10);
  std::memcpy(&words[kNormBelowWord], &norm, 4);
  // Prefixes and limits of the scores that rows have; windows of any width, and some past the end.
  put_words(words, kPrefixWord, random_at(round + 4) % 42);
  put_words(words, kPrefixWord + 2, random_at(round + 10));
  words[kFreeWord] = static_cast<uint32_t>(random_at(round + 5) % 140);
  if (round % 5 == 0) words[kFreeWord] += 2 * kRankBits;
  put_words(words, kSelectedLimitWord, random_at(round + 6) % 6 << 32 | random_at(round) % 42);
  put_words(words, kSelectedLimitWord + 2, random_at(round + 7));
  put_words(words, kOthersLimitWord, random_at(round + 8) % 42);
  put_words(words, kOthersLimitWord + 2, random_at(round + 9));
  // Limits that no row is within.
  if (round % 3 == 1) std::fill_n(words.begin() + kOthersLimitWord, 4, 0u);
  if (round % 6 == 1) std::fill_n(words.begin() + kSelectedLimitWord, 4, 0u);
  return words;
}

// The expected number is found by looking at each row.
uint32_t rows_to_remove(RuleArgs const& args) {
  RuleErasure const erasure(args);
  uint32_t count = 0;
  for (int32_t slot = 0; slot < kBuckets * kBucketCapacity; ++slot) {
    count += erasure.removes(args, *entry_at(args.table, slot), slot) ? 1 : 0;
  }
  return count;
}

std::vector<float> norms_of(uint64_t round) {
  std::vector<float> norms(kBuckets * kBucketCapacity);
  for (size_t i = 0; i < norms.size(); ++i) {
    norms[i] = static_cast<float>(random_at(round * 7 + i) % 10);
  }
  norms[3] = std::numeric_limits<float>::quiet_NaN();
  return norms;
}

void check_same(TableRef const& ours, TableRef const& truth) {
  auto const bytes = static_cast<size_t>(kBuckets * bucket_bytes(truth.policy));
  CHECK(std::memcmp(ours.index, truth.index, bytes) == 0);
  for (int c = 0; c < kNumCounters; ++c) CHECK(ours.counters[c] == truth.counters[c]);
}

void test_round(ScorePolicy policy, uint64_t round) {
  TestTable ours(kBuckets, 1, policy, true), truth(kBuckets, 1, policy, true);
  fill(ours.ref, round);
  fill(truth.ref, round);
  auto const numbers = numbers_of(round);
  auto const norms = norms_of(round);
  auto const fields = static_cast<uint32_t>(random_at(round + 11) % 32);
  auto const* const used_norms = (fields & kNormBelow) != 0 ? norms.data() : nullptr;
  std::vector<uint32_t> bins(kNumCountWords, 9), expected(kNumCountWords, 9);
  RuleArgs args{fields, numbers.data(), used_norms, bins.data(), ours.ref};
  RuleArgs same{fields, numbers.data(), used_norms, expected.data(), truth.ref};
  CHECK(cuda::count_rule(args, nullptr, nullptr) == cudaSuccess);
  cpu::count_rule(same, {});
  CHECK(bins == expected);
  auto const rows = truth.ref.counters[kRows];
  auto const leaving = rows_to_remove(same);
  CHECK(cuda::erase_rule(args, nullptr, nullptr) == cudaSuccess);
  cpu::erase_rule(same, {});
  CHECK(bins[0] == leaving);
  CHECK(expected[0] == leaving);
  CHECK(truth.ref.counters[kRows] + truth.ref.counters[kRemovedByRule] == rows);
  CHECK(keeps_slots(truth.ref) == (expected[0] == 0));
  check_same(ours.ref, truth.ref);
  for (auto const factor : {0.5f, 1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    CHECK(cuda::decay({&factor, ours.ref}, nullptr, nullptr) == cudaSuccess);
    cpu::decay({&factor, truth.ref}, {});
    check_same(ours.ref, truth.ref);
  }
}

// All rows have the same bin: a warp adds once for all.
void test_equal_scores() {
  TestTable table(kBuckets, 1, ScorePolicy::kStep, true);
  for (int32_t slot = 0; slot < kBuckets * kBucketCapacity; ++slot) {
    *entry_at(table.ref, slot) = {static_cast<Key>(slot), 7};
  }
  std::vector<uint32_t> numbers(kNumRuleWords), bins(kNumCountWords);
  numbers[kFreeWord] = 3 * kRankBits;
  CHECK(cuda::count_rule({kUnusedFor, numbers.data(), nullptr, bins.data(), table.ref}, nullptr,
                         nullptr) == cudaSuccess);
  CHECK(bins[0] == kBuckets * kBucketCapacity);
}

// A search of the score and then of the hash, as Python makes it, finds each row by its bins.
void test_windows_of_hash() {
  TestTable table(kBuckets, 1, ScorePolicy::kStep, true);
  std::vector<int> rows(kBuckets);
  for (uint64_t number = 0; number < kBuckets * kBucketCapacity * 7 / 8; ++number) {
    auto const key = random_at(number);
    auto const bucket = local_bucket_of(table.ref, hash_key(key, table.ref.hash));
    auto& taken = rows[static_cast<size_t>(bucket)];
    if (taken == kBucketCapacity) continue;
    bucket_at(table.ref, bucket).entries[taken++] = {key, 1 + number % 3};
  }
  for (int32_t slot = 0; slot < kBuckets * kBucketCapacity; slot += 97) {
    auto const& entry = *entry_at(table.ref, slot);
    if (entry.score == kEmptyScore) continue;
    auto const hash = hash_key(entry.key, table.ref.hash);
    std::vector<uint32_t> numbers(kNumRuleWords), bins(kNumCountWords);
    put_words(numbers, kPrefixWord, entry.score);
    put_words(numbers, kPrefixWord + 2, hash);
    for (auto const free : {64, 53, 42, 11, 3}) {
      numbers[kFreeWord] = static_cast<uint32_t>(free);
      CHECK(cuda::count_rule({0, numbers.data(), nullptr, bins.data(), table.ref}, nullptr,
                             nullptr) == cudaSuccess);
      std::vector<uint32_t> expected(kNumCountWords);
      for (int32_t other = 0; other < kBuckets * kBucketCapacity; ++other) {
        auto const& row = *entry_at(table.ref, other);
        auto const its = hash_key(row.key, table.ref.hash);
        if (row.score != entry.score || (free < 64 && (its ^ hash) >> free != 0)) continue;
        auto const shift = free > kDigitBits ? free - kDigitBits : 0;
        ++expected[(its >> shift) % (uint64_t{1} << (free - shift))];
      }
      bins.resize(2 * kRankBins), expected.resize(2 * kRankBins);
      CHECK(bins == expected);
      bins.resize(kNumCountWords);
    }
  }
}

}  // namespace

int main() {
  dynemb::testing::with_each_hash([] {
    for (auto const policy : {ScorePolicy::kStep, ScorePolicy::kLfu, ScorePolicy::kCustomized,
                              ScorePolicy::kDecayingLfu}) {
      for (uint64_t round = 0; round < 60; ++round) test_round(policy, round);
    }
  });
  test_equal_scores();
  test_windows_of_hash();
  return 0;
}
