// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/world.h: random numbers, and random tables that calls change one after the other.
#pragma once

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/exact_counter.h"
#include "tests/fuzz/call_frame.h"
#include "xla_ffi/schema.h"

namespace dynemb::fuzz {

// The bits of a seed decide everything, whatever library there is: no distribution of <random>.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t bits() { return engine_(); }
  int64_t below(int64_t n) {
    return n <= 0 ? 0 : static_cast<int64_t>(bits() % static_cast<uint64_t>(n));
  }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<int64_t>(choices.size()))];
  }
  float real() { return static_cast<float>(bits() >> 40) * 0x1p-24f * 2.0f - 1.0f; }
  // A number that sizes, slots and lengths should not have.
  int64_t hostile() {
    return of<int64_t>({-1, -2, -3, -4, -5, 0, 1, 127, 128, 129, INT32_MAX, INT32_MIN,
                        int64_t{1} << 32, (int64_t{1} << 32) + 3, INT64_MAX, INT64_MIN,
                        static_cast<int64_t>(bits()), between(-300, 300)});
  }

 private:
  std::mt19937_64 engine_;
};

struct Table {
  OptimizerKind optimizer;
  int64_t buckets, dim, counter_rows, policy, initializer, eval_initializer, evicts, parts;
  int64_t skips_nonfinite, hash_seed;
  AdmissionRule rule;
  int64_t threshold, sketch_words, sketch_bits, keeps_scores, ring_size, keep_for;
  XLA_FFI_DataType dtype;
  Array index, values, counters, sketch, rings;
  std::vector<Array> states;
  bool is_sound = true;  // its index and counters are what calls have made of an empty table

  explicit Table(Random& random);

  bool takes_given() const { return policy == 3 || (policy == 1 && evicts != 0); }
  int64_t slots() const { return buckets * kBucketCapacity; }
  std::vector<int64_t> fields() const;
  Entry const& entry(int64_t slot) const;
  uint64_t score(int64_t slot) const;  // as callers see it
  uint8_t const* bucket_of(int64_t slot) const;
  uint64_t counter(Counter which) const { return counters.data<uint64_t>()[which]; }
  int64_t live() const;            // slots that have a score
  int64_t slot_of(Key key) const;  // or -1
  std::vector<uint8_t> row(int64_t slot) const;
  void check_counted_keys() const;  // of a rule that counts by key
  void check_log() const;           // of removed keys

  // Random bytes where keys, digests, scores, counters stand.
  void damage(Random& random);

 private:
  void empty_sketch();
};

inline void expect(bool condition, char const* what) {
  if (condition) return;
  fprintf(stderr, "a result is wrong: %s\n", what);
  std::abort();
}

}  // namespace dynemb::fuzz
