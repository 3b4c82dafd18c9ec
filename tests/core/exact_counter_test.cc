// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/exact_counter_test.cc: ids counted by key in lookups of several threads, beside maps.
#include "core/exact_counter.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/args.h"
#include "cpu/table_ops.h"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using dynemb::testing::random_at;
using dynemb::testing::test_hash;
using dynemb::testing::TestTable;
using dynemb::testing::ThreadsPool;

constexpr int64_t kBuckets = 4;  // of the table: too few rows for all keys, and refusing the others
constexpr int kOfEach = 2;       // buckets of the counter
constexpr uint32_t kThreshold = 3;

struct Counted {
  uint64_t lookup;
  uint32_t count;
};

// One bucket of the counter, as sentences say it.
class Model {
 public:
  explicit Model(AdmissionRule rule) : rule_(rule), buckets_(size_t(kBuckets) * kOfEach) {}

  // Returns the keys that are admitted.
  std::set<Key> look_up(std::map<Key, uint32_t> const& unseen, uint64_t lookup) {
    std::map<size_t, std::vector<Key>> by_bucket;
    for (auto const& [key, uses] : unseen) by_bucket[bucket_of_key(key)].push_back(key);
    std::set<Key> admitted;
    for (auto const& [number, keys] : by_bucket) {
      auto& bucket = buckets_[number];
      for (auto const key : with_room(bucket, keys)) {
        auto const more = rule_ == AdmissionRule::kLookups ? 1 : unseen.at(key);
        bucket[key] = {lookup, bucket[key].count + more};
        if (bucket[key].count < kThreshold) continue;
        bucket.erase(key);
        admitted.insert(key);
      }
    }
    return admitted;
  }

 private:
  using Bucket = std::map<Key, Counted>;

  size_t bucket_of_key(Key key) const {
    return bucket_of(hash_key(key, test_hash), buckets_.size());
  }

  // Old keys make room in order of their latest lookup; of new ones the smallest marks have it.
  static std::vector<Key> with_room(Bucket& bucket, std::vector<Key> const& keys) {
    std::vector<Key> counted, added;
    for (auto const key : keys) (bucket.count(key) != 0 ? counted : added).push_back(key);
    std::sort(added.begin(), added.end(), [](Key a, Key b) {
      return (hash_key(a, test_hash) & ~kMarkBit) < (hash_key(b, test_hash) & ~kMarkBit);
    });
    std::vector<std::pair<std::pair<uint64_t, uint32_t>, Key>> leaving;
    for (auto const& [key, now] : bucket) {
      if (std::count(counted.begin(), counted.end(), key) != 0) continue;
      leaving.push_back({{now.lookup, now.count}, key});
    }
    std::sort(leaving.begin(), leaving.end());
    auto const free = size_t(kBucketCapacity) - bucket.size();
    added.resize(std::min(added.size(), free + leaving.size()));
    for (size_t i = 0; i + free < added.size(); ++i) bucket.erase(leaving[i].second);
    counted.insert(counted.end(), added.begin(), added.end());
    return counted;
  }

  AdmissionRule rule_;
  std::vector<Bucket> buckets_;
};

struct Fixture {
  TestTable table{kBuckets, 1, ScorePolicy::kStep, false};
  std::vector<uint64_t> counter =
      std::vector<uint64_t>(size_t(kBuckets * kOfEach * kBucketBytes / 8));
  Admission admission;

  explicit Fixture(AdmissionRule rule) {
    auto* const base = reinterpret_cast<uint8_t*>(counter.data());
    for (int64_t b = 0; b < kBuckets * kOfEach; ++b) {
      auto* const entries = reinterpret_cast<Entry*>(base + b * kBucketBytes + kEntriesOffset);
      for (int i = 0; i < kBucketCapacity; ++i) entries[i].key = kEmptyKey;
    }
    admission = {rule,       0,
                 0,          kOfEach * kWordsOfBucket,
                 kThreshold, reinterpret_cast<uint32_t*>(counter.data())};
  }

  std::vector<int32_t> look_up(std::vector<Key> const& ids, int threads) {
    std::vector<int32_t> slots(ids.size());
    auto args = std::make_unique<LookupArgs>();
    args->num_tables = args->num_features = 1;
    args->tables[0] = table.ref;
    args->admissions[0] = admission;
    FeatureRef f{};
    f.ids = ids.data();
    f.num_ids = f.num_bags = static_cast<int64_t>(ids.size());
    f.bag_size = 1;
    f.pooling = Pooling::kNoRows;
    f.slots = slots.data();
    args->features[0] = f;
    ThreadsPool pool(threads);
    cpu::lookup(*args, pool.pool);
    return slots;
  }
};

// Most keys occur once; a few come back, and some are in the lookup several times.
void run(AdmissionRule rule, uint64_t distinct) {
  Fixture fixture(rule);
  Model model(rule);
  for (uint64_t lookup = 1; lookup <= 6; ++lookup) {
    std::vector<Key> ids;
    for (uint64_t i = 0; i < 8000; ++i) {
      ids.push_back(random_at(lookup / 2 << 40 | random_at(lookup << 32 | i) % distinct));
    }
    std::map<Key, uint32_t> unseen;
    for (auto const id : ids) {
      if (find(fixture.table.ref, id) < 0) ++unseen[id];
    }
    auto const admitted = model.look_up(unseen, lookup);
    auto const slots = fixture.look_up(ids, 8);
    for (size_t i = 0; i < ids.size(); ++i) {
      auto const kept_out = unseen.count(ids[i]) != 0 && admitted.count(ids[i]) == 0;
      CHECK((slots[i] == kNotAdmittedSlot) == kept_out);
    }
  }
}

void run_all() {
  for (auto const rule : {AdmissionRule::kOccurrences, AdmissionRule::kLookups}) {
    run(rule, 500);     // room for all
    run(rule, 9000);    // keys are forgotten
    run(rule, 100000);  // a lookup has more keys than the counter has room for
  }
}

}  // namespace

int main() {
  dynemb::testing::with_each_hash(run_all);
  std::puts("exact_counter: ok");
  return 0;
}
