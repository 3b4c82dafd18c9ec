// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/admission.h: which unseen ids of a training lookup get a row.
//
// An id that is not admitted reads the initial row that it would get, and nothing is stored. The
// decision is a function of the ids, the order of lookups and the seed, never of threads:
//   kProbability  a coin of Philox(seed, key, number of the lookup): one a lookup, whatever the
//                 duplicates and the device
//   kFrequency    occurrences of the key while it had no row, counted in a sketch. Those of a call
//                 are all added before the first is read; additions commute.
//   kOccurrences, kLookups  the same, or lookups that had the key, counted by key
//                 (core/exact_counter.h)
//
// The sketch is a count-min sketch cut into blocks, one for each bucket of the table. The counters
// of a key lie in the block of its bucket: four rows, one counter in each. So a block is wherever
// its bucket is, on any number of devices, and two buckets never share a counter. Counters saturate
// and only ever count too much, so a key is admitted early or in time, never late.
#pragma once

#include <cstdint>

#include "core/atomic.h"
#include "core/hash.h"
#include "core/macros.h"
#include "core/philox.h"
#include "core/table_ref.h"

namespace dynemb {

enum class AdmissionRule : uint8_t {
  kAll = 0,
  kNone = 1,
  kProbability = 2,
  kFrequency = 3,
  kOccurrences = 4,
  kLookups = 5,
};

DYNEMB_HD bool counts_keys(AdmissionRule rule) { return rule >= AdmissionRule::kOccurrences; }

constexpr int kSketchRows = 4;

// What a lookup does with a table besides what the table says. Apart from TableRef, which every
// kernel takes.
struct Admission {
  AdmissionRule rule;
  uint8_t keeps_scores;   // 1: the scores of rows that are found stay
  uint8_t counter_bits;   // of the sketch: 8 or 16
  uint16_t sketch_words;  // of a block, a multiple of kSketchRows
  uint32_t threshold;     // kProbability: of 2^32; else occurrences, or lookups
  uint32_t* sketch;       // [local_buckets, sketch_words], or the buckets of core/exact_counter.h
};

// `lookup`: the number of this training lookup, counted from 1.
DYNEMB_HD bool wins_coin(Admission const& admission, uint64_t seed, uint64_t key, uint64_t lookup) {
  // Initial rows have 0 in the last word.
  constexpr uint32_t kCoin = 0x80000000u;
  PhiloxBlock blocks[1] = {
      {{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32), static_cast<uint32_t>(lookup),
        kCoin | static_cast<uint32_t>(lookup >> 32)}}};
  philox(blocks, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return blocks[0].word[0] < admission.threshold;
}

// The counters of one key.
class SketchCounters {
 public:
  DYNEMB_HD SketchCounters(Admission const& admission, int64_t local_bucket, uint64_t hash)
      : block_(admission.sketch + local_bucket * admission.sketch_words),
        row_words_(static_cast<uint32_t>(admission.sketch_words / kSketchRows)),
        bits_(admission.counter_bits),
        mixed_{hash_number(hash), hash_number(hash + 0x9e3779b97f4a7c15ull)} {}

  DYNEMB_HD void add(uint32_t occurrences) const {
    for (int row = 0; row < kSketchRows; ++row) {
      auto const at = counter(row);
      auto seen = atomic_load(at.word);
      for (;;) {
        auto const count = seen >> at.shift & most();
        if (count == most()) break;
        auto const next = most() - count < occurrences ? most() : count + occurrences;
        auto const wanted = (seen & ~(most() << at.shift)) | next << at.shift;
        auto const found = compare_and_swap(at.word, seen, wanted);
        if (found == seen) break;
        seen = found;
      }
    }
  }

  DYNEMB_HD uint32_t estimate() const {
    auto least = most();
    for (int row = 0; row < kSketchRows; ++row) {
      auto const at = counter(row);
      auto const count = atomic_load(at.word) >> at.shift & most();
      least = count < least ? count : least;
    }
    return least;
  }

 private:
  struct Place {
    uint32_t* word;
    uint32_t shift;
  };

  DYNEMB_HD uint32_t most() const { return (1u << bits_) - 1; }

  DYNEMB_HD Place counter(int row) const {
    auto const per_word = static_cast<uint32_t>(32 / bits_);
    auto const random = static_cast<uint32_t>(mixed_[row / 2] >> (row % 2 * 32));
    auto const width = uint64_t{row_words_} * per_word;
    auto const column = static_cast<uint32_t>(random * width >> 32);
    auto* const words = block_ + static_cast<uint32_t>(row) * row_words_;
    return {words + column / per_word, column % per_word * static_cast<uint32_t>(bits_)};
  }

  uint32_t* block_;
  uint32_t row_words_;
  int32_t bits_;
  uint64_t mixed_[2];
};

DYNEMB_HD SketchCounters sketch_counters(TableRef const& table, Admission const& admission,
                                         Key key) {
  auto const hash = hash_key(key, table.hash);
  return SketchCounters(admission, local_bucket_of(table, hash), hash);
}

// kFrequency: once all occurrences of the call are counted.
DYNEMB_HD bool is_frequent(TableRef const& table, Admission const& admission, Key key) {
  return sketch_counters(table, admission, key).estimate() >= admission.threshold;
}

}  // namespace dynemb
