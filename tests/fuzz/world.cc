// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/world.h"

#include <algorithm>

namespace dynemb::fuzz {

Table::Table(Random& random)
    : optimizer(static_cast<OptimizerKind>(random.below(4))),
      buckets(random.between(1, 3)),
      dim(random.of<int64_t>({1, 2, 3, 4, 7, 8, 16, 33, 64, 130})),
      counter_rows(random.between(1, 4)),
      policy(random.below(5)),
      initializer(random.below(5)),
      eval_initializer(random.below(5)),
      evicts(random.below(2)),
      parts(random.of<int64_t>({1, 1, 2, 5})),
      skips_nonfinite(random.below(2)),
      hash_seed(random.one_in(2) ? 0 : static_cast<int64_t>(random.bits())),
      dtype(random.of({XLA_FFI_DataType_F32, XLA_FFI_DataType_F32, XLA_FFI_DataType_BF16,
                       XLA_FFI_DataType_F16})),
      index(XLA_FFI_DataType_U32, {buckets, kBucketBytes / 4}),
      values(dtype, {slots(), dim}),
      counters(XLA_FFI_DataType_U32, {counter_rows, kNumCounters, 2}) {
  memset(index.memory.get(), 0, index.bytes());
  memset(values.memory.get(), 0, values.bytes());
  memset(counters.memory.get(), 0, counters.bytes());
  for (int64_t slot = 0; slot < slots(); ++slot) const_cast<Entry&>(entry(slot)).key = kEmptyKey;
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
  fields[kTableHalflife] = 1 + hash_seed % 7 * (hash_seed % 7);
  fields[kTableTakesGiven] = takes_given() ? 1 : 0;
  return fields;
}

Entry const& Table::entry(int64_t slot) const {
  auto const* const bucket = index.data<uint8_t>() + slot / kBucketCapacity * kBucketBytes;
  return reinterpret_cast<Entry const*>(bucket + kEntriesOffset)[slot % kBucketCapacity];
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
  for (auto const* const array : {&index, &counters}) {
    auto const all = random.one_in(4);
    auto const bytes = static_cast<int64_t>(array->bytes());
    auto const count = all ? bytes : random.between(1, 200);
    for (int64_t i = 0; i < count; ++i) {
      array->data<uint8_t>()[all ? i : random.below(bytes)] = static_cast<uint8_t>(random.bits());
    }
  }
}

}  // namespace dynemb::fuzz
