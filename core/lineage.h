// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/lineage.h: which table a state is, and which moment of it.
//
// Two states that differ in nothing but their history have equal shapes, clocks and seeds, so
// random numbers tell them apart. `init` draws the run, `init` and every restore a segment, and
// every training lookup a nonce. Only a nonce distinguishes two branches of one state: what a
// lookup will change is not known when it begins. These are the only words of a state that differ
// between two runs of one program (docs/decisions/identity.md).
#pragma once

#include <cstdint>

#include "core/hash.h"
#include "core/macros.h"
#include "core/table_ref.h"

namespace dynemb {

constexpr int kNumNonces = kNumCounters - kNonces;
constexpr int kNumAncestors = (kMoment - kAncestors) / 2;
static_assert((kNumNonces & (kNumNonces - 1)) == 0, "the place of a moment is a mask away");

struct Moment {
  uint64_t number;
  uint64_t nonce;   // that the lookup of this moment drew; odd, since 0 is that of no lookup
  uint64_t before;  // the nonce of the lookup before it; or 0
};

DYNEMB_HD uint64_t* nonce_at(TableRef const& table, uint64_t moment) {
  return table.counters + kNonces + (moment & (kNumNonces - 1));
}

// Moves a table to its next moment, by one thread. `drawn` differs between any two lookups, but may
// be that of several tables of a call, which the seed of their rows distinguishes.
DYNEMB_HD Moment begin_moment(TableRef const& table, uint64_t drawn) {
  auto const before = table.counters[kNonce];
  auto const number = table.counters[kMoment] + 1;
  auto const nonce = hash_number(drawn ^ table.counters[kSeed] ^ before) | 1;
  table.counters[kMoment] = number;
  table.counters[kNonce] = nonce;
  *nonce_at(table, number) = nonce;
  return {number, nonce, before};
}

}  // namespace dynemb
