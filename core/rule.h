// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/rule.h: which rows a rule removes. A rule is a few comparisons of a row's score and norm
// with traced numbers, and two limits of rank, which keep a number of rows whatever the comparisons
// say.
//
// A pinned row takes no part: it never leaves, and no limit counts it.
//
// Everything follows from score, key and clock, so one device decides as many do.
#pragma once

#include <cstdint>

#include "core/args.h"
#include "core/custom_score.h"
#include "core/hash.h"
#include "core/macros.h"
#include "core/score.h"
#include "core/table_ref.h"

namespace dynemb {

// The comparisons that a rule makes: bits of RuleArgs::fields.
enum RuleField : uint32_t {
  kUnusedFor = 1,     // the latest lookup is more than so many units of the clock newer
  kUnusedSince = 2,   // the last use is before this clock
  kHighBelow = 4,     // the count, or the custom score (core/custom_score.h), is less
  kNormBelow = 8,     // so is the norm of the row
  kAnySuffices = 16,  // one of them suffices; otherwise all must hold
};
constexpr uint32_t kRuleComparisons = kUnusedFor | kUnusedSince | kHighBelow | kNormBelow;

// The operand of a rule has kNumRuleWords words of 32 bits, 64-bit numbers as (low, high).
enum RuleWord : int32_t {
  kUnusedForWord = 0,
  kUnusedSinceWord = 2,
  kHighBelowWord = 4,
  kNormBelowWord = 6,       // the bits of a float
  kPrefixWord = 7,          // Rank
  kFreeWord = 11,           // see Window
  kSelectedLimitWord = 12,  // Rank
  kOthersLimitWord = 16,    // Rank
  kNumRuleWords = 20
};

// Rows are evicted in this order: by score, then by hash, which no two keys share.
struct Rank {
  uint64_t score;
  uint64_t hash;
};

constexpr int kRankBits = 128;  // of a rank: its score, then its hash
constexpr int kDigitBits = 11;  // of a rank, that a count tells apart
constexpr int kRankBins = 1 << kDigitBits;

// The result of a count: bins of the rows that are not selected, bins of those that are, and then
// which bits any of the scores has and which any of them lacks.
constexpr int kAnyOneWord = 2 * kRankBins;
constexpr int kAnyZeroWord = kAnyOneWord + 2;
constexpr int kNumCountWords = kAnyZeroWord + 2;

DYNEMB_HD uint64_t read_words(uint32_t const* words, int at) {
  return uint64_t{words[at + 1]} << 32 | words[at];
}

DYNEMB_HD Rank read_rank(uint32_t const* words, int at) {
  return {read_words(words, at), read_words(words, at + 2)};
}

DYNEMB_HD float bits_to_float(uint32_t bits) {
  union {
    uint32_t from;
    float to;
  } both;
  both.from = bits;
  return both.to;
}

struct Rule {
  uint32_t fields;
  ScoreRule scores;
  uint64_t clock;  // of the latest lookup
  uint64_t use;    // what one by it weighs, kDecayingLfu only
  uint64_t unused_for;
  uint64_t unused_since;
  uint64_t high_below;
  float norm_below;
};

DYNEMB_HD Rule read_rule(RuleArgs const& args) {
  auto const* const words = args.numbers;
  auto const scores = score_rule(args.table);
  auto const clock = args.table.counters[kClock];
  auto const decays = scores.policy == ScorePolicy::kDecayingLfu;
  return {args.fields,
          scores,
          clock,
          decays ? pack_weight(clock, scores.halflife) : 0,
          read_words(words, kUnusedForWord),
          read_words(words, kUnusedSinceWord),
          read_words(words, kHighBelowWord),
          bits_to_float(words[kNormBelowWord])};
}

DYNEMB_HD bool is_used_before(uint64_t age, uint64_t clock, uint64_t since) {
  return since > clock || age > clock - since;
}

// A decaying count is compared as what it weighs beside a use by the latest lookup.
DYNEMB_HD bool is_high_below(Rule const& rule, RuleArgs const& args, uint64_t score, int64_t slot) {
  if (rule.scores.policy == ScorePolicy::kCustomized) {
    return *custom_score_at(args.table, static_cast<int32_t>(slot)) < rule.high_below;
  }
  auto const high = high_of(score);
  if (rule.scores.policy != ScorePolicy::kDecayingLfu) return high < rule.high_below;
  auto const passed = static_cast<uint32_t>(rule.use >> 32);
  auto const epochs = epochs_since(score, rule.clock, passed, rule.scores.halflife);
  // A count has 30 bits, and what is above it is all the same.
  auto const below = rule.high_below < kHighScoreLimit + 1 ? rule.high_below : kHighScoreLimit + 1;
  return halved(high, epochs) < below * static_cast<uint32_t>(rule.use);
}

// Which of the comparisons hold, of those that the rule makes. All threads of a GPU take the same
// branches here: with all comparisons the kernel takes longer than the loads of the entries.
DYNEMB_HD uint32_t comparisons_that_hold(Rule const& rule, RuleArgs const& args, uint64_t score,
                                         int64_t slot) {
  uint32_t holds = 0;
  if ((rule.fields & (kUnusedFor | kUnusedSince)) != 0) {
    auto const age = age_of(rule.scores.policy, score, rule.clock);
    if (age > rule.unused_for) holds |= kUnusedFor;
    if (is_used_before(age, rule.clock, rule.unused_since)) holds |= kUnusedSince;
  }
  if ((rule.fields & kHighBelow) != 0 && is_high_below(rule, args, score, slot)) {
    holds |= kHighBelow;
  }
  if (args.norms != nullptr && args.norms[slot] < rule.norm_below) holds |= kNormBelow;
  return holds & rule.fields & kRuleComparisons;
}

DYNEMB_HD bool is_selected(Rule const& rule, RuleArgs const& args, uint64_t score, int64_t slot) {
  auto const wanted = rule.fields & kRuleComparisons;
  auto const holds = comparisons_that_hold(rule, args, score, slot);
  if ((rule.fields & kAnySuffices) != 0) return holds != 0;
  return wanted != 0 && holds == wanted;
}

// Rank::score of a row, at least 1: 0 is that of no row (RuleErasure::is_none).
DYNEMB_HD uint64_t rank_score(Rule const& rule, RuleArgs const& args, uint64_t score,
                              int64_t slot) {
  if (rule.scores.policy == ScorePolicy::kCustomized) {
    return *custom_score_at(args.table, static_cast<int32_t>(slot)) + 1;
  }
  if (rule.scores.policy != ScorePolicy::kDecayingLfu) return score;
  auto const passed = static_cast<uint32_t>(rule.use >> 32);
  return decaying_rank(score, rule.clock, passed, rule.scores.halflife);
}

DYNEMB_HD bool may_leave(Entry const& entry) {
  return entry.score != kEmptyScore && !is_pinned(entry.score);
}

DYNEMB_HD uint64_t low_bits(int count) { return count < 64 ? (uint64_t{1} << count) - 1 : ~0ull; }

// The ranks that a count looks at: those that equal a prefix above the lowest `free` bits. They are
// told apart by the next bits, kDigitBits of them and none beyond the end of the score. So a search
// tells apart by the score first, then by the hash.
//
// A saturating window has all ranks; scores beyond it are in its last bin.
struct Window {
  Rank prefix;
  int free;  // in [1, kRankBits]
  bool saturates;

  DYNEMB_HD bool is_of_hash() const { return free <= 64; }
};

// kFreeWord holds `free`, and kRankBits * 2 more if the window saturates.
DYNEMB_HD Window read_window(uint32_t const* words) {
  auto const word = words[kFreeWord];
  auto free = static_cast<int>(word % (2 * kRankBits));
  if (free < 1) free = 1;
  if (free > kRankBits) free = kRankBits;
  return {read_rank(words, kPrefixWord), free, word >= 2 * kRankBits};
}

// Some of the buckets of a shard, in turn: after its last one comes its first.
struct BucketRange {
  int64_t first;
  int64_t count;
};

// Returns where the keys of a window lie: the high bits of a hash choose the bucket.
DYNEMB_HD BucketRange buckets_of(TableRef const& table, Window const& window) {
  if (!window.is_of_hash()) return {0, table.local_buckets};
  auto const low = window.prefix.hash & ~low_bits(window.free);
  auto const high = low | low_bits(window.free);
  auto const more = bucket_of(high, table.num_buckets) - bucket_of(low, table.num_buckets);
  auto const count = static_cast<int64_t>(more) + 1;
  if (count >= table.local_buckets) return {0, table.local_buckets};
  return {local_bucket_of(table, low), count};
}

// Which bins a count adds rows to.
class RuleBins {
 public:
  DYNEMB_HD explicit RuleBins(RuleArgs const& args)
      : rule_(read_rule(args)), window_(read_window(args.numbers)) {
    auto const free = window_.is_of_hash() ? window_.free : window_.free - 64;
    shift_ = free > kDigitBits ? free - kDigitBits : 0;
    mask_ = low_bits(free - shift_);
  }

  // The bin of a row and its Rank::score; -1 where it has none.
  struct Place {
    int32_t bin;
    uint64_t score;
  };

  DYNEMB_HD Place of(RuleArgs const& args, Entry const& entry, int64_t slot) const {
    if (!may_leave(entry)) return {-1, 0};
    auto const score = rank_score(rule_, args, entry.score, slot);
    auto word = score;
    if (window_.is_of_hash()) {
      if (score != window_.prefix.score) return {-1, 0};
      word = hash_key(entry.key, args.table.hash);
    }
    auto digit = word >> shift_;
    if (window_.saturates) {
      digit = digit < mask_ ? digit : mask_;
    } else if (!is_in_window(word)) {
      return {-1, 0};
    }
    auto const bin = static_cast<int32_t>(digit & mask_);
    return {bin + (is_selected(rule_, args, entry.score, slot) ? kRankBins : 0), score};
  }

  DYNEMB_HD BucketRange buckets(TableRef const& table) const { return buckets_of(table, window_); }

 private:
  DYNEMB_HD bool is_in_window(uint64_t word) const {
    auto const prefix = window_.is_of_hash() ? window_.prefix.hash : window_.prefix.score;
    return (word ^ prefix) >> shift_ <= mask_;
  }

  Rule rule_;
  Window window_;
  int shift_;
  uint64_t mask_;
};

// Which slots an erasure vacates.
class RuleErasure {
 public:
  DYNEMB_HD explicit RuleErasure(RuleArgs const& args)
      : rule_(read_rule(args)),
        selected_(read_rank(args.numbers, kSelectedLimitWord)),
        others_(read_rank(args.numbers, kOthersLimitWord)) {}

  // Whether no row is within its limit, so that none has to be read.
  DYNEMB_HD bool removes_none() const {
    auto const selects = (rule_.fields & kRuleComparisons) != 0;
    return is_none(others_) && (!selects || is_none(selected_));
  }

  DYNEMB_HD bool removes(RuleArgs const& args, Entry const& entry, int64_t slot) const {
    if (!may_leave(entry)) return false;
    auto const selected = is_selected(rule_, args, entry.score, slot);
    Rank const limit{selected ? selected_.score : others_.score,
                     selected ? selected_.hash : others_.hash};
    auto const score = rank_score(rule_, args, entry.score, slot);
    if (score != limit.score) return score < limit.score;  // so few rows are hashed
    return hash_key(entry.key, args.table.hash) <= limit.hash;
  }

 private:
  DYNEMB_HD static bool is_none(Rank const& limit) { return (limit.score | limit.hash) == 0; }

  Rule rule_;
  // The last one that leaves, of the selected rows and of the others. All zeros, which no row has:
  // none.
  Rank selected_;
  Rank others_;
};

// A count of uses that is scaled: never below 1, so that 1 still means seen once.
DYNEMB_HD uint64_t decayed_score(uint64_t score, float factor) {
  if (score == kEmptyScore || factor == 1.0f) return score;
  auto const scaled = static_cast<double>(high_of(score)) * static_cast<double>(factor);
  auto const limit = static_cast<double>(kHighScoreLimit);
  auto const whole = static_cast<uint64_t>(scaled > 0 ? (scaled < limit ? scaled : limit) : 0);
  // The number is rounded half to even. The product is only compared, so no compiler makes it part
  // of a sum.
  auto const half = static_cast<double>(whole) + 0.5;
  auto const up = scaled > half || (scaled == half && (whole & 1) != 0);
  auto const count = whole + (up ? 1 : 0);
  return (score & kPinBit) | pack_score(count > 0 ? count : 1, score);
}

}  // namespace dynemb
