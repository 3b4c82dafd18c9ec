// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/score_test.cc: decaying counts against their closed form in floating point, and the
// bit that pins a row.
#include "core/score.h"

#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "tests/core/test_table.h"

namespace dynemb::testing {
namespace {

constexpr uint32_t kHalflives[] = {1, 2, 7, 100, 65537, (1u << 31) - 1};

void weights_are_nearly_exponential() {
  for (auto const halflife : kHalflives) {
    for (uint64_t i = 0; i < 1000; ++i) {
      auto const passed = static_cast<uint32_t>(random_at(i) % halflife);
      auto const exact = kUse * std::exp2(static_cast<double>(passed) / halflife);
      CHECK(std::abs(weight_of(passed, halflife) - exact) <= 0.003 * exact + 1);
    }
  }
}

uint64_t rank_at(uint64_t score, uint64_t clock, uint32_t halflife) {
  return decaying_rank(score, clock, passed_of(clock, halflife), halflife);
}

// What a count weighs, in uses at the begin of the epoch of its last use.
double weight_at(uint64_t score, uint32_t halflife) {
  auto const epoch = static_cast<uint32_t>(score) / halflife;
  return std::ldexp(static_cast<double>(high_of(score)), static_cast<int>(epoch));
}

void ranks_are_in_order_of_weights() {
  for (auto const halflife : {1u, 2u, 7u, 100u}) {
    for (uint64_t i = 0; i < 20000; ++i) {
      auto const clock = 1 + random_at(3 * i) % 500;
      auto const later = clock + random_at(7 * i) % 10000;
      uint64_t scores[2];
      for (uint64_t side = 0; side < 2; ++side) {
        auto const bits = random_at(5 * i + side) % 30;
        auto const high = 1 + random_at(11 * i + side) % (uint64_t{1} << bits);
        scores[side] = pack_score(high, 1 + random_at(13 * i + side) % clock);
      }
      auto const lower = weight_at(scores[0], halflife) < weight_at(scores[1], halflife);
      auto const same = weight_at(scores[0], halflife) == weight_at(scores[1], halflife);
      for (auto const now : {clock, later}) {
        auto const first = rank_at(scores[0], now, halflife);
        auto const second = rank_at(scores[1], now, halflife);
        CHECK((first < second) == lower && (first == second) == same);
        CHECK(first > 0 && first < (uint64_t{1} << 63) - 2);
      }
    }
  }
}

// Rows that were used a moment before the low half of the clock began again.
void ages_survive_a_wrap() {
  auto const before = (uint64_t{1} << 32) - 5, after = (uint64_t{1} << 32) + 5;
  auto const old = pack_score(1000, before - 500), young = pack_score(1000, before);
  CHECK(rank_at(old, after, 100) < rank_at(young, after, 100));
  CHECK(rank_at(young, after, 100) <= rank_at(pack_score(1000, after), after, 100));
}

void pins_survive_uses() {
  for (auto const policy : {ScorePolicy::kStep, ScorePolicy::kLfu, ScorePolicy::kCustomized,
                            ScorePolicy::kDecayingLfu}) {
    auto const rule = ScoreRule(policy, 3);
    auto score = first_score(policy, 1) | kPinBit;
    auto plain = first_score(policy, 1);
    for (uint64_t clock = 1; clock < 40; clock += 1 + clock % 5) {
      auto const use = touch_of(rule, clock, clock * 7 % 11);
      touch(&score, rule, use, 3);
      touch(&plain, rule, use, 3);
      CHECK(is_pinned(score) && without_pin(score) == plain);
      CHECK(is_touched(policy, score, clock));
    }
    rescore(&score, 77);
    CHECK(score == (77 | kPinBit));
  }
}

// All orders of uses give one score, also where the count is at its limit.
void uses_commute() {
  for (auto const policy : {ScorePolicy::kLfu, ScorePolicy::kDecayingLfu}) {
    auto const rule = ScoreRule(policy, 3);
    auto const use = touch_of(rule, 8, 0);
    for (auto const high : {uint64_t{5}, kMostUses - 700, kMostUses, kHighScoreLimit}) {
      auto forward = pack_score(high, 8), backward = forward;
      uint32_t const uses[] = {1, 0, 2000, 3, 1 << 29, 7};
      for (int i = 0; i < 6; ++i) touch(&forward, rule, use, uses[i]);
      for (int i = 5; i >= 0; --i) touch(&backward, rule, use, uses[i]);
      CHECK(forward == backward && high_of(forward) == (high > kMostUses ? high : kMostUses));
    }
  }
}

// Threads that pass the limit together end at it, and nothing reaches the bits beside the count.
void threads_end_at_the_limit() {
  constexpr uint64_t kThreads = 4, kUses = 20000;
  for (auto const policy : {ScorePolicy::kLfu, ScorePolicy::kDecayingLfu}) {
    auto const rule = ScoreRule(policy, 3);
    auto const use = touch_of(rule, 8, 0);
    auto const once = count_of(rule, use, 1);
    for (auto const missing : {uint64_t{1}, 100 * once, kThreads * kUses * once + 5}) {
      uint64_t score = kPinBit | pack_score(kMostUses - missing, 7);
      std::vector<std::thread> running;
      for (uint64_t t = 0; t < kThreads; ++t) {
        running.emplace_back([&] {
          for (uint64_t i = 0; i < kUses; ++i) touch(&score, rule, use);
        });
      }
      for (auto& thread : running) thread.join();
      // The first use of a lookup lets the count decay; the others only add.
      auto const begun = next_score(rule, pack_score(kMostUses - missing, 7), use, 0);
      auto const sum = high_of(begun) + kThreads * kUses * once;
      CHECK(score == (kPinBit | pack_uses(sum, use.clock)));
    }
  }
}

}  // namespace
}  // namespace dynemb::testing

int main() {
  dynemb::testing::weights_are_nearly_exponential();
  dynemb::testing::ranks_are_in_order_of_weights();
  dynemb::testing::ages_survive_a_wrap();
  dynemb::testing::pins_survive_uses();
  dynemb::testing::uses_commute();
  dynemb::testing::threads_end_at_the_limit();
  std::puts("score: ok");
}
