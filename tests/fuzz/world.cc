// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/world.h"

#include <algorithm>
#include <set>

namespace dynemb::fuzz {

Table::Table(Random& random)
    : optimizer(static_cast<OptimizerKind>(random.below(4))),
      buckets(random.between(1, 3)),
      dim(random.of<int64_t>({1, 2, 3, 4, 7, 8, 16, 33, 64, 130})),
      counter_rows(random.between(1, 4)),
      policy(random.below(5)),
      initializer(random.below(5)),
      eval_initializer(random.below(5)),
      evicts(random.below(kCompetes + 1)),
      parts(random.of<int64_t>({1, 1, 2, 5})),
      skips_nonfinite(random.below(2)),
      hash_seed(random.one_in(2) ? 0 : static_cast<int64_t>(random.bits())),
      rule(static_cast<AdmissionRule>(random.one_in(3) ? 0 : random.below(6))),
      threshold(random.of<int64_t>({0, 1, 2, 2, 3, 9, 200, INT32_MAX, UINT32_MAX})),
      sketch_words(counts_keys(rule)                   ? random.between(1, 3) * kWordsOfBucket
                   : rule == AdmissionRule::kFrequency ? random.of<int64_t>({4, 16, 32, 544})
                                                       : random.below(2) * 4),
      sketch_bits(random.of<int64_t>({8, 16})),
      keeps_scores(evicts == kRefuses && random.one_in(3) ? 1 : 0),
      ring_size(buckets % counter_rows == 0 && random.one_in(2)
                    ? random.of<int64_t>({1, 2, 7, random.between(1, 600)})
                    : 0),
      keep_for(random.of<int64_t>(
          {0, 0, 1, 3, INT64_MAX, static_cast<int64_t>(random.bits() >> random.between(1, 63))})),
      dtype(random.of({XLA_FFI_DataType_F32, XLA_FFI_DataType_F32, XLA_FFI_DataType_BF16,
                       XLA_FFI_DataType_F16})),
      index(XLA_FFI_DataType_U32, {buckets, bucket_bytes(static_cast<ScorePolicy>(policy)) / 4}),
      values(dtype, {slots(), dim}),
      counters(XLA_FFI_DataType_U32, {counter_rows, kNumCounters, 2}),
      sketch(XLA_FFI_DataType_U32, {buckets, sketch_words}),
      rings(XLA_FFI_DataType_U32, {counter_rows, ring_size + 1, 2}) {
  memset(index.memory.get(), 0, index.bytes());
  memset(values.memory.get(), 0, values.bytes());
  memset(counters.memory.get(), 0, counters.bytes());
  memset(rings.memory.get(), 0, rings.bytes());
  for (int64_t slot = 0; slot < slots(); ++slot) const_cast<Entry&>(entry(slot)).key = kEmptyKey;
  empty_sketch();
  for (int s = 0; s < num_states(optimizer); ++s) {
    auto shape = std::vector<int64_t>{slots(), dim};
    if (is_rowwise(optimizer)) shape.pop_back();
    auto const& state = states.emplace_back(XLA_FFI_DataType_F32, shape);
    memset(state.memory.get(), 0, state.bytes());
  }
}

std::vector<int64_t> Table::fields() const {
  std::vector<int64_t> fields(kNumTableFields, 0);
  fields[kTableNumStates] = static_cast<int64_t>(states.size());
  fields[kTableNumBuckets] = buckets * parts;
  fields[kTablePolicy] = policy;
  fields[kTableEvicts] = evicts;
  fields[kTableInitializer] = initializer;
  fields[kTableEvalInitializer] = eval_initializer;
  fields[kTableOptimizer] = static_cast<int64_t>(optimizer);
  fields[kTableLocalBuckets] = buckets;
  fields[kTableCounterRows] = counter_rows;
  fields[kTableSkipsNonfinite] = skips_nonfinite;
  fields[kTableHashSeed] = hash_seed;
  fields[kTableKeepsScores] = keeps_scores;
  fields[kTableAdmission] = static_cast<int64_t>(rule);
  fields[kTableThreshold] = threshold;
  fields[kTableSketchWords] = sketch_words;
  fields[kTableSketchBits] = sketch_bits;
  fields[kTableRingSize] = ring_size;
  fields[kTableKeepFor] = keep_for;
  fields[kTableHalflife] = 1 + hash_seed % 7 * (hash_seed % 7);
  fields[kTableTakesGiven] = takes_given() ? 1 : 0;
  return fields;
}

void Table::empty_sketch() {
  memset(sketch.memory.get(), 0, sketch.bytes());
  if (!counts_keys(rule)) return;
  for (size_t at = 0; at < sketch.bytes(); at += kBucketBytes) {
    auto* const entries = reinterpret_cast<Entry*>(sketch.data<uint8_t>() + at + kEntriesOffset);
    for (int i = 0; i < kBucketCapacity; ++i) entries[i].key = kEmptyKey;
  }
}

void Table::check_counted_keys() const {
  std::set<Key> keys;
  for (size_t at = 0; at < sketch.bytes(); at += kBucketBytes) {
    auto const* const digests = sketch.data<uint8_t>() + at;
    auto const* const entries = reinterpret_cast<Entry const*>(digests + kEntriesOffset);
    for (int i = 0; i < kBucketCapacity; ++i) {
      expect((digests[i] == 0) == (entries[i].key == kEmptyKey), "the digest of a counted key");
      if (digests[i] == 0) continue;
      expect(keys.insert(entries[i].key).second, "a key that is counted twice");
      expect(static_cast<uint32_t>(entries[i].score) < threshold, "a key that is frequent");
      expect(slot_of(entries[i].key) < 0, "a key that is counted and has a row");
    }
  }
}

// Each removed row has a number in the ring of its part, whatever removed it.
void Table::check_log() const {
  expect(counter(kEvictedYoung) <= counter(kEvicted), "young rows that were evicted");
  if (ring_size == 0) return;
  uint64_t written = 0;
  for (int64_t row = 0; row < counter_rows; ++row) {
    auto const* const ring = rings.data<uint64_t>() + row * (ring_size + 1);
    written += ring[0];
    for (uint64_t i = 0; i < std::min(ring[0], static_cast<uint64_t>(ring_size)); ++i) {
      expect(!is_padding(ring[1 + i]), "a removed key");
    }
  }
  auto const left = counter(kEvicted) + counter(kErased) + counter(kRemovedByRule);
  expect(written == left, "removed keys that were logged");
}

Entry const& Table::entry(int64_t slot) const {
  return reinterpret_cast<Entry const*>(bucket_of(slot) + kEntriesOffset)[slot % kBucketCapacity];
}

uint64_t Table::score(int64_t slot) const {
  if (static_cast<ScorePolicy>(policy) != ScorePolicy::kCustomized) {
    return without_pin(entry(slot).score);
  }
  auto const* const given = bucket_of(slot) + kBucketBytes;
  return reinterpret_cast<uint64_t const*>(given)[slot % kBucketCapacity];
}

uint8_t const* Table::bucket_of(int64_t slot) const {
  auto const bytes = bucket_bytes(static_cast<ScorePolicy>(policy));
  return index.data<uint8_t>() + slot / kBucketCapacity * bytes;
}

int64_t Table::live() const {
  int64_t count = 0;
  for (int64_t slot = 0; slot < slots(); ++slot) count += entry(slot).score != kEmptyScore;
  return count;
}

int64_t Table::slot_of(Key key) const {
  for (int64_t slot = 0; slot < slots(); ++slot) {
    if (entry(slot).score != kEmptyScore && entry(slot).key == key) return slot;
  }
  return -1;
}

std::vector<uint8_t> Table::row(int64_t slot) const {
  auto const bytes = values.bytes() / static_cast<size_t>(slots());
  auto const* const first = values.data<uint8_t>() + static_cast<size_t>(slot) * bytes;
  return {first, first + bytes};
}

void Table::damage(Random& random) {
  is_sound = false;
  for (auto const* const array : {&index, &counters, &sketch, &rings}) {
    if (array->bytes() == 0) continue;
    auto const all = random.one_in(4);
    auto const bytes = static_cast<int64_t>(array->bytes());
    auto const count = all ? bytes : random.between(1, 200);
    for (int64_t i = 0; i < count; ++i) {
      array->data<uint8_t>()[all ? i : random.below(bytes)] = static_cast<uint8_t>(random.bits());
    }
  }
}

}  // namespace dynemb::fuzz
