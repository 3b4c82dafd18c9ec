// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/lookup.h: a training lookup, id by id, in the phases that core/README.md describes.
//
// - probe: present keys are found (core/find.h) and touched (core/score.h), the others are missing;
// - claim: missing keys take slots (core/claim.h);
// - store: the winner of each claimed slot writes key, digest and score; its row gets first values;
// - resolve: every id that was missing learns what became of its key.
//
// All ids of a phase may run at the same time; a phase starts when the one before has ended.
#pragma once

#include <cstdint>

#include "core/claim.h"
#include "core/feature_ref.h"
#include "core/find.h"
#include "core/macros.h"
#include "core/slot.h"
#include "core/table_ref.h"

namespace dynemb {

// What the lookups of one table share.
struct Touch {
  uint64_t clock;
  uint64_t given;  // the user's score, kCustomized only
};

struct Pending {
  int32_t slot;  // pending(...), or kRefusedSlot
  bool won;
};

DYNEMB_HD Pending pending_claim(int64_t bucket, Claim const& result) {
  if (result.place < 0) return {kRefusedSlot, false};
  return {pending(static_cast<int32_t>(bucket * kBucketCapacity + result.place)), result.won};
}

template <class Group>
DYNEMB_HD Pending claim_missing(Group const& group, TableRef const& table, Key key,
                                uint64_t clock) {
  auto const hash = hash_key(key);
  auto const bucket = local_bucket_of(table, hash);
  auto const result = claim(group, table, bucket_at(table, bucket), hash, clock);
  return pending_claim(bucket, result);
}

struct Stored {
  int32_t slot;  // -1: a key of higher rank took the slot after this one had claimed it
  bool evicted;
};

// Called once for each claim that was won.
DYNEMB_HD Stored store_key(TableRef const& table, Key key, int32_t pending_slot, uint64_t clock) {
  auto const slot = pending(pending_slot);  // its own inverse
  auto const hash = hash_key(key);
  auto* const score = score_at(table, slot);
  if (atomic_load(score) != mark_of(hash)) return {-1, false};
  auto* const place = key_at(table, slot);
  auto const evicted = *place != kEmptyKey;
  *place = key;
  *digest_at(table, slot) = digest_of(hash);
  atomic_store(score, first_score(table.policy, clock));
  return {slot, evicted};
}

DYNEMB_HD int32_t resolve(TableRef const& table, Key key, int32_t slot, Touch const& use) {
  if (!is_pending(slot)) return slot;
  slot = pending(slot);
  if (*key_at(table, slot) != key) return kRefusedSlot;
  touch(score_at(table, slot), table.policy, use.clock, use.given);
  return slot;
}

}  // namespace dynemb
