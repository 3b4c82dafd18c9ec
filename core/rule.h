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
#include "core/hash.h"
#include "core/macros.h"
#include "core/score.h"
#include "core/table_ref.h"

namespace dynemb {

// The comparisons that a rule makes: bits of RuleArgs::fields.
enum RuleField : uint32_t {
  kUnusedFor = 1,     // the latest lookup is more than so many units of the clock newer
  kUnusedSince = 2,   // the last use is before this clock
  kHighBelow = 4,     // the count, or the given score, is less
  kNormBelow = 8,     // so is the norm of the row
  kAnySuffices = 16,  // one of them suffices; otherwise all must hold
};
constexpr uint32_t kRuleComparisons = kUnusedFor | kUnusedSince | kHighBelow | kNormBelow;

// The operand of a rule: kNumRuleWords words of 32 bits, 64-bit numbers as (low, high).
enum RuleWord : int32_t {
  kUnusedForWord = 0,
  kUnusedSinceWord = 2,
  kHighBelowWord = 4,
  kNormBelowWord = 5,  // the bits of a float
  kPrefixWord = 6,     // Rank
  kDigitWord = 10,
  kSelectedLimitWord = 11,  // Rank
  kOthersLimitWord = 15,    // Rank
  kNumRuleWords = 19
};

// The order in which rows leave: by score, then by hash, which no two keys share.
struct Rank {
  uint64_t score;
  uint64_t hash;
};

constexpr int kRankDigits = 16;  // bytes, the most significant first
constexpr int kRankBins = 256;   // values of a digit

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
  uint64_t unused_for;
  uint64_t unused_since;
  uint32_t high_below;
  float norm_below;
};

DYNEMB_HD Rule read_rule(RuleArgs const& args) {
  auto const* const words = args.numbers;
  return {args.fields,
          score_rule(args.table),
          args.table.counters[kClock],
          read_words(words, kUnusedForWord),
          read_words(words, kUnusedSinceWord),
          words[kHighBelowWord],
          bits_to_float(words[kNormBelowWord])};
}

DYNEMB_HD bool is_used_before(uint64_t age, uint64_t clock, uint64_t since) {
  return since > clock || age > clock - since;
}

// A decaying count is compared as what it weighs beside a use by the latest lookup.
DYNEMB_HD bool is_high_below(Rule const& rule, uint64_t score) {
  auto const high = high_of(score);
  if (rule.scores.policy != ScorePolicy::kDecayingLfu) return high < rule.high_below;
  auto const use = pack_weight(rule.clock, rule.scores.halflife);
  auto const epochs =
      epochs_since(score, rule.clock, static_cast<uint32_t>(use >> 32), rule.scores.halflife);
  return halved(high, epochs) < uint64_t{rule.high_below} * static_cast<uint32_t>(use);
}

DYNEMB_HD bool is_selected(Rule const& rule, RuleArgs const& args, uint64_t score, int64_t slot) {
  auto const age = age_of(rule.scores.policy, score, rule.clock);
  uint32_t holds = 0;
  if (age > rule.unused_for) holds |= kUnusedFor;
  if (is_used_before(age, rule.clock, rule.unused_since)) holds |= kUnusedSince;
  if (is_high_below(rule, score)) holds |= kHighBelow;
  if (args.norms != nullptr && args.norms[slot] < rule.norm_below) holds |= kNormBelow;
  auto const wanted = rule.fields & kRuleComparisons;
  if ((rule.fields & kAnySuffices) != 0) return (holds & wanted) != 0;
  return wanted != 0 && (holds & wanted) == wanted;
}

// `clock`: of the latest lookup.
DYNEMB_HD Rank rank_of(TableRef const& table, Entry const& entry, uint64_t clock) {
  auto score = entry.score;
  if (table.policy == ScorePolicy::kDecayingLfu) {
    score = decaying_rank(score, clock, passed_of(clock, table.halflife), table.halflife);
  }
  return {score, hash_key(entry.key, table.hash)};
}

DYNEMB_HD bool may_leave(Entry const& entry) {
  return entry.score != kEmptyScore && !is_pinned(entry.score);
}

DYNEMB_HD bool is_within(Rank const& rank, Rank const& limit) {
  return rank.score < limit.score || (rank.score == limit.score && rank.hash <= limit.hash);
}

DYNEMB_HD uint32_t digit_of(Rank const& rank, int digit) {
  auto const word = digit < 8 ? rank.score : rank.hash;
  return static_cast<uint32_t>(word >> (56 - 8 * (digit % 8)) & 0xff);
}

// Are the first `digits` digits equal?
DYNEMB_HD bool begins_with(Rank const& rank, Rank const& prefix, int digits) {
  if (digits == 0) return true;
  if (digits <= 8) return (rank.score ^ prefix.score) >> (64 - 8 * digits) == 0;
  return rank.score == prefix.score && (rank.hash ^ prefix.hash) >> (128 - 8 * digits) == 0;
}

// The bins that a count adds rows to: [selected, digit] of the rows whose rank begins with a
// prefix.
class RuleBins {
 public:
  DYNEMB_HD explicit RuleBins(RuleArgs const& args)
      : rule_(read_rule(args)),
        prefix_(read_rank(args.numbers, kPrefixWord)),
        digit_(static_cast<int>(args.numbers[kDigitWord] % kRankDigits)) {}

  // The bin of a slot; -1 where it has none.
  DYNEMB_HD int32_t of(RuleArgs const& args, Entry const& entry, int64_t slot) const {
    if (!may_leave(entry)) return -1;
    auto const rank = rank_of(args.table, entry, rule_.clock);
    if (!begins_with(rank, prefix_, digit_)) return -1;
    auto const selected = is_selected(rule_, args, entry.score, slot);
    return static_cast<int32_t>(digit_of(rank, digit_)) + (selected ? kRankBins : 0);
  }

 private:
  Rule rule_;
  Rank prefix_;
  int digit_;
};

// Which slots an erasure vacates.
class RuleErasure {
 public:
  DYNEMB_HD explicit RuleErasure(RuleArgs const& args)
      : rule_(read_rule(args)),
        selected_(read_rank(args.numbers, kSelectedLimitWord)),
        others_(read_rank(args.numbers, kOthersLimitWord)) {}

  DYNEMB_HD bool removes(RuleArgs const& args, Entry const& entry, int64_t slot) const {
    if (!may_leave(entry)) return false;
    auto const selected = is_selected(rule_, args, entry.score, slot);
    Rank const limit{selected ? selected_.score : others_.score,
                     selected ? selected_.hash : others_.hash};
    return is_within(rank_of(args.table, entry, rule_.clock), limit);
  }

 private:
  Rule rule_;
  Rank selected_;  // the last one of the selected rows that leaves
  Rank others_;    // the same of the other rows; all zeros, which no row has: none
};

// A count of uses that is scaled: never below 1, so that 1 still means seen once.
DYNEMB_HD uint64_t decayed_score(uint64_t score, float factor) {
  if (score == kEmptyScore || factor == 1.0f) return score;
  auto const scaled = static_cast<double>(high_of(score)) * static_cast<double>(factor);
  auto const limit = static_cast<double>(kHighScoreLimit);
  auto const whole = static_cast<uint64_t>(scaled > 0 ? (scaled < limit ? scaled : limit) : 0);
  // Half to even. The product is only compared, so no compiler makes it part of a sum.
  auto const half = static_cast<double>(whole) + 0.5;
  auto const up = scaled > half || (scaled == half && (whole & 1) != 0);
  auto const count = whole + (up ? 1 : 0);
  return (score & kPinBit) | pack_score(count > 0 ? count : 1, score);
}

}  // namespace dynemb
