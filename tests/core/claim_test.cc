// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/claim_test.cc: whatever the threads, the same keys win, each with one slot.
#include "core/claim.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "core/full_bucket.h"
#include "core/lookup.h"
#include "core/score.h"
#include "tests/core/lockstep_group.h"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using dynemb::testing::LockstepGroup;
using dynemb::testing::random_at;
using dynemb::testing::test_hash;
using dynemb::testing::TestTable;

constexpr uint64_t kClock = 1000;

// Keys whose home is bucket 0 of a table with two.
std::vector<Key> keys_of_first_bucket(size_t count, uint64_t stream) {
  std::vector<Key> keys;
  for (uint64_t i = 0; keys.size() < count; ++i) {
    auto const key = random_at(stream << 32 | i);
    if (bucket_of(hash_key(key, test_hash), 2) == 0) keys.push_back(key);
  }
  return keys;
}

struct Scenario {
  std::vector<Key> old_keys;  // fill the bucket from the front
  // The old keys have these; kClock means used by this lookup. With kCustomized a score is the
  // given one << 32 | clock.
  std::vector<uint64_t> scores;
  std::vector<Key> new_keys;  // distinct
  OnFull on_full;
  ScorePolicy policy = ScorePolicy::kStep;
  uint64_t given = 0;  // the score of new keys, kCustomized only

  TestTable table() const {
    TestTable result(2, 1, policy, true);
    result.ref.evicts = on_full;
    return result;
  }

  // May a new key take the slot of a row with this score?
  bool may_leave(uint64_t score) const {
    if (on_full == kRefuses || is_pinned(score)) return false;
    if (policy == ScorePolicy::kStep) return score != kClock;
    auto const is_lower = on_full == kEvicts || score < (given << 32 | kClock);
    return static_cast<uint32_t>(score) != kClock && is_lower;
  }
};

// The keys that must be in the bucket afterwards, from the rule as a sentence says it.
std::set<Key> expected(Scenario const& s) {
  std::set<Key> result;
  std::vector<std::pair<uint64_t, Key>> leaving;
  for (size_t i = 0; i < s.old_keys.size(); ++i) {
    result.insert(s.old_keys[i]);
    if (s.may_leave(s.scores[i])) leaving.push_back({s.scores[i], s.old_keys[i]});
  }
  std::sort(leaving.begin(), leaving.end());
  auto newcomers = s.new_keys;
  std::sort(newcomers.begin(), newcomers.end(), [](Key a, Key b) {
    return (hash_key(a, test_hash) & ~kMarkBit) < (hash_key(b, test_hash) & ~kMarkBit);
  });
  auto const room = size_t(kBucketCapacity) - s.old_keys.size() + leaving.size();
  newcomers.resize(std::min(newcomers.size(), room));
  auto const free = size_t(kBucketCapacity) - s.old_keys.size();
  auto const evicted = newcomers.size() > free ? newcomers.size() - free : 0;
  for (size_t i = 0; i < evicted; ++i) result.erase(leaving[i].second);
  result.insert(newcomers.begin(), newcomers.end());
  return result;
}

void fill(TestTable& table, Scenario const& s) {
  auto const bucket = bucket_at(table.ref, 0);
  for (size_t i = 0; i < s.old_keys.size(); ++i) {
    bucket.entries[i].key = s.old_keys[i];
    bucket.entries[i].score = s.scores[i];
    if (s.policy == ScorePolicy::kCustomized) {
      custom_scores(bucket)[i] = high_of(s.scores[i]);
      bucket.entries[i].score = s.scores[i] & (kPinBit | 0xffffffffu);
    }
    bucket.digests[i] = digest_of(hash_key(s.old_keys[i], test_hash));
  }
}

// What the bucket holds after all claims: old keys, claims, and marks turned back into keys.
std::set<Key> content(TestTable& table, Scenario const& s) {
  std::map<uint64_t, Key> by_mark;
  for (auto key : s.new_keys) by_mark[mark_of(hash_key(key, test_hash))] = key;
  std::set<Key> result;
  auto const bucket = bucket_at(table.ref, 0);
  for (int i = 0; i < kBucketCapacity; ++i) {
    if (bucket.entries[i].key == kEmptyKey) continue;
    auto const key = is_mark(bucket.entries[i].score) ? by_mark.at(bucket.entries[i].score)
                                                      : bucket.entries[i].key;
    CHECK(result.insert(key).second);  // no key twice
  }
  return result;
}

void claim(Ranking const& ranking, Bucket const& bucket, Key key) {
  auto const hash = hash_key(key, test_hash);
  if (claim_empty(bucket, key, hash).place < 0) claim_full(ranking, test_hash, bucket, key, hash);
}

// Claims for every new key `copies` times, by `threads` threads that start from different places.
void claim_by_threads(TestTable& table, Scenario const& s, int threads, size_t copies) {
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      auto const bucket = bucket_at(table.ref, 0);
      for (size_t i = 0; i < s.new_keys.size() * copies; ++i) {
        auto const key = s.new_keys[(i * 101 + size_t(t) * 13) % s.new_keys.size()];
        claim(
            Ranking(table.ref, touch_of(score_rule(table.ref), kClock, s.given | kCustomScoreBit)),
            bucket, key);
      }
    });
  }
  for (auto& thread : running) thread.join();
}

// One group alone claims for the keys of a full bucket, each `copies` times.
template <bool kMayBeGiven>
void claim_by_group(TestTable& table, Scenario const& s, int lanes, size_t copies) {
  auto const bucket = bucket_at(table.ref, 0);
  std::vector<uint64_t> waiting;
  for (size_t i = 0; i < s.new_keys.size() * copies; ++i) {
    auto const key = s.new_keys[i * 101 % s.new_keys.size()];
    auto const hash = hash_key(key, test_hash);
    if (claim_empty(bucket, key, hash).place < 0) waiting.push_back(mark_of(hash));
  }
  if (waiting.empty()) return;
  std::vector<uint64_t> marks(kBucketCapacity);  // of new keys; 0: a row
  for (int i = 0; i < kBucketCapacity; ++i) {
    if (was_empty(bucket, i))
      marks[size_t(i)] = mark_of(hash_key(bucket.entries[i].key, test_hash));
  }
  dynemb::testing::run_lockstep(lanes, [&](LockstepGroup const& group) {
    std::vector<Entry> own(kBucketCapacity, {~Key{0}, 1});  // of other lanes: would go first
    for (auto i = group.rank(); i < kBucketCapacity; i += lanes) own[size_t(i)] = bucket.entries[i];
    auto full = FullBucket<LockstepGroup, kMayBeGiven>(
        group, table.ref, bucket, own.data(),
        Ranking(table.ref, touch_of(score_rule(table.ref), kClock, s.given | kCustomScoreBit)));
    uint32_t rows_left = 0;
    for (auto const mark : waiting) {
      auto const may_claim = rank_of_mark(mark) >= full.lowest_rank();
      auto const taken = full.claim(mark);
      CHECK(taken.place < kBucketCapacity && (may_claim || taken.place < 0));
      CHECK(full.rows_left() == (rows_left += taken.won && taken.displaced == 0 ? 1 : 0));
      if (group.rank() != 0 || taken.place < 0) continue;
      auto& there = marks[size_t(taken.place)];
      CHECK(taken.won ? taken.displaced == there : there == mark);
      there = mark;
    }
  });
  for (int i = 0; i < kBucketCapacity; ++i) {
    if (marks[size_t(i)] == 0) continue;
    bucket.digests[i] = 1;
    bucket.entries[i].score = marks[size_t(i)];
  }
}

// As a probe of a GPU looks for keys: only where the digest is the same.
int find_exactly(Bucket const& bucket, Key key) {
  auto const digest = digest_of(hash_key(key, test_hash));
  for (int i = 0; i < kBucketCapacity; ++i) {
    if (bucket.digests[i] == digest && bucket.entries[i].key == key) return i;
  }
  return -1;
}

// Empty slots are claimed, and their keys written, while other threads probe and touch: old keys
// are found where they are, new ones by no thread, and the thread sanitizer sees no byte shared.
void claim_beside_probes(Scenario const& s) {
  auto table = s.table();
  fill(table, s);
  auto const bucket = bucket_at(table.ref, 0);
  std::vector<std::thread> running;
  for (int t = 0; t < 2; ++t) {
    running.emplace_back([&] {
      for (auto const key : s.new_keys) {
        auto const claimed = claim_empty_slot(table.ref, key, kClock);
        CHECK(claimed.slot == kMissingSlot || is_pending(claimed.slot));
      }
    });
    running.emplace_back([&] {
      for (size_t i = 0; i < s.old_keys.size(); ++i) {
        CHECK(find_exactly(bucket, s.old_keys[i]) == static_cast<int>(i));
        touch(&bucket.entries[i].score, ScorePolicy::kStep, {kClock, 0});
      }
      for (auto const key : s.new_keys) CHECK(find_exactly(bucket, key) == -1);
    });
  }
  for (auto& thread : running) thread.join();
  for (size_t i = 0; i < s.old_keys.size(); ++i) {
    CHECK(bucket.entries[i].score == (kClock | (s.scores[i] & kPinBit)));
  }
  size_t claimed = 0;
  for (int i = 0; i < kBucketCapacity; ++i) {
    if (!was_empty(bucket, i) || bucket.entries[i].key == kEmptyKey) continue;
    CHECK(bucket.entries[i].score == kClock);
    ++claimed;
  }
  auto const room = size_t(kBucketCapacity) - s.old_keys.size();
  CHECK(claimed == std::min(s.new_keys.size(), room));
}

Scenario scenario(size_t old_count, size_t touched, size_t new_count, bool evicts, bool ties) {
  Scenario s;
  s.old_keys = keys_of_first_bucket(old_count, 1);
  for (size_t i = 0; i < old_count; ++i) {
    s.scores.push_back(i < touched ? kClock : ties ? 5 : 1 + random_at(i) % 20);
  }
  s.new_keys = keys_of_first_bucket(new_count, 2);
  s.on_full = evicts ? kEvicts : kRefuses;
  return s;
}

// Makes a full bucket of rows with scores from 0 to 19, and new keys with the score `given`.
Scenario competition(size_t touched, size_t new_count, uint64_t given, OnFull on_full) {
  auto s = scenario(128, 0, new_count, true, false);
  for (size_t i = 0; i < 128; ++i) {
    s.scores[i] = (random_at(i) % 20) << 32 | (i < touched ? kClock : kClock - 3);
  }
  s.on_full = on_full, s.policy = ScorePolicy::kCustomized, s.given = given;
  return s;
}

// The first rows of a full bucket are pinned, whatever their scores.
Scenario pinned(size_t count, size_t new_count) {
  auto s = scenario(128, 0, new_count, true, false);
  for (size_t i = 0; i < count; ++i) s.scores[i] |= kPinBit;
  return s;
}

// Rows of which some were used an epoch before others: then twice the count weighs the same.
Scenario fading(size_t touched, size_t new_count) {
  auto s = scenario(128, 0, new_count, true, false);
  for (size_t i = 0; i < 128; ++i) {
    auto const high = (1 + random_at(i) % 20) << 10;
    s.scores[i] = high << 32 | (i < touched ? kClock : kClock - 1);
  }
  s.policy = ScorePolicy::kDecayingLfu;
  return s;
}

void check_all() {
  std::vector<Scenario> const scenarios = {
      scenario(0, 0, 1, true, false),       // one key in an empty bucket
      scenario(0, 0, 100, true, false),     // room for all
      scenario(100, 10, 28, true, false),   // exactly full
      scenario(100, 10, 60, true, false),   // the lowest scores leave
      scenario(128, 0, 50, true, true),     // equal scores: the smallest keys go
      scenario(128, 100, 90, true, false),  // more newcomers than rows that may leave
      scenario(128, 128, 40, true, false),  // no row may be evicted
      scenario(90, 0, 90, false, false),    // no eviction: the smallest marks win
      scenario(0, 0, 400, true, false),     // three times the bucket
      competition(30, 50, 9, kEvicts),      // any row that is not used may leave
      competition(30, 90, 9, kCompetes),    // only those of a score up to theirs
      competition(0, 20, 0, kCompetes),     // older rows of the lowest score
      competition(0, 200, 40, kCompetes),   // all of them
      pinned(100, 60),                      // the others leave
      pinned(128, 60),                      // none may leave
      fading(30, 50),                       // the least counts leave
  };
  for (auto const& s : scenarios) {
    auto const wanted = expected(s);
    auto const counts_lookups = s.policy == ScorePolicy::kStep;
    for (int repeat = 0; repeat < 20 && counts_lookups; ++repeat) claim_beside_probes(s);
    for (int repeat = 0; repeat < 5; ++repeat) {
      auto by_threads = s.table();
      fill(by_threads, s);
      claim_by_threads(by_threads, s, 4, 3);
      CHECK(content(by_threads, s) == wanted);
    }
    for (int lanes : {1, 2, 8}) {
      auto by_group = s.table();
      fill(by_group, s);
      claim_by_group<true>(by_group, s, lanes, 2);
      CHECK(content(by_group, s) == wanted);
      if (s.policy == ScorePolicy::kCustomized) continue;
      auto by_score = s.table();
      fill(by_score, s);
      claim_by_group<false>(by_score, s, lanes, 2);
      CHECK(content(by_score, s) == wanted);
    }
  }
}

}  // namespace

int main() {
  dynemb::testing::with_each_hash(check_all);
  std::puts("claim: ok");
  return 0;
}
