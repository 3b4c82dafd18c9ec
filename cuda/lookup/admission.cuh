// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/admission.cuh: which ids that a training lookup did not find may take a slot
// (core/admission.h).
//
// The probe only lists the ids of tables with a rule (kCounted), so that an id that is found pays
// nothing for it. Blocks wait for each other between the phases.
#pragma once

#include <cstdint>

#include "core/admission.h"
#include "core/exact_counter.h"
#include "cuda/lookup/full_buckets.cuh"
#include "cuda/lookup/missing.cuh"

namespace dynemb::cuda {

class Admitter {
 public:
  __device__ __forceinline__ Admitter(MissingCall const& call, Selection<true> const& selection,
                                      uint32_t count)
      : call_(call), selection_(selection), count_(count) {}

  // Ids of tables without counts are decided; others are counted, or begin to be.
  __device__ __forceinline__ void begin() const {
    for_each_id([&](Id const& id) {
      if (id.listed->won != kCounted) return;
      auto const& admission = id.admission;
      switch (admission.rule) {
        case AdmissionRule::kFrequency:
          return sketch_counters(id.table, admission, id.key).add(id.uses());
        case AdmissionRule::kOccurrences:
        case AdmissionRule::kLookups:
          return id.keep(id.counter().begin(id.uses()), kCounting);
        case AdmissionRule::kProbability:
          return enter(id, wins_coin(admission, id.table.counters[kSeed], id.key, id.lookup));
        default:
          return enter(id, false);
      }
    });
  }

  // The phases of core/exact_counter.h; `wait` lets blocks wait for each other.
  template <class Wait>
  __device__ __forceinline__ void count_keys(Wait const& wait) const {
    wait();
    for_each_id([&](Id const& id) {
      if (id.listed->won == (kUndecided | kCounting)) id.keep(id.counter().claim(), kCounting);
    });
    wait();
    for_each_id([&](Id const& id) {
      if (id.listed->won == (kFullBucket | kCounting)) id.counter().store(id.slot());
    });
    wait();
    for_each_id([&](Id const& id) {
      auto const won = id.listed->won;
      if ((won & kCounting) == 0) return;
      auto const claimed = Pending{id.slot(), static_cast<Won>(won & ~kCounting)};
      id.slot() = id.counter().add(claimed, id.uses());
    });
  }

  // Ids that were counted; those that are admitted claim an empty slot, if there is one.
  __device__ __forceinline__ void decide() const {
    for_each_id([&](Id const& id) {
      if (id.listed->won == kCounted) {
        enter(id, is_frequent(id.table, id.admission, id.key));
      } else if ((id.listed->won & kCounting) != 0) {
        enter(id, id.counter().decide(id.slot()));
      }
    });
  }

 private:
  struct Id {
    Missing* listed;
    FeatureRef const& feature;
    TableRef const& table;
    Admission const& admission;
    uint32_t const* all_uses;
    Touch const& use;
    uint64_t lookup;  // counted from 1
    Key key;

    __device__ __forceinline__ int32_t& slot() const { return feature.slots[listed->position]; }
    __device__ __forceinline__ uint32_t uses() const { return uses_at(all_uses, listed->position); }
    __device__ __forceinline__ KeyCounter counter() const {
      return {table, admission, lookup, key};
    }

    __device__ __forceinline__ void keep(Pending const& claimed, int flag) const {
      slot() = claimed.slot;
      listed->won = static_cast<Won>(claimed.won | flag);
    }
  };

  template <class Function>
  __device__ __forceinline__ void for_each_id(Function const& function) const {
    for (auto i = thread_of_grid(); i < count_; i += threads_of_grid()) {
      auto* const listed = call_.list.last - i;
      auto const& feature = call_.view.features[listed->feature];
      auto const t = feature.table;
      function(Id{listed, feature, call_.view.tables[t], selection_.admissions[t],
                  selection_.uses[listed->feature], call_.uses[t],
                  call_.counted[t].updates.values[1], listed->key});
    }
  }

  static __device__ __forceinline__ void enter(Id const& id, bool admitted) {
    Pending claimed{kNotAdmittedSlot, kNotWon};
    if (admitted) {
      claimed = claim_empty_slot(id.table, id.key, id.use.clock);
      if (claimed.slot == kMissingSlot) claimed.won = kUndecided;
    }
    id.keep(claimed, 0);
  }

  MissingCall const& call_;
  Selection<true> const& selection_;
  uint32_t count_;
};

// Returns how many times blocks have waited.
template <class Wait>
__device__ __noinline__ uint32_t admit(MissingCall const& call, Selection<true> const& selection,
                                       uint32_t count, Wait const& wait_for_round) {
  uint32_t round = 0;
  auto const wait = [&] { wait_for_round(++round); };
  auto const admitter = Admitter(call, selection, count);
  admitter.begin();
  if (selection.counts_keys) admitter.count_keys(wait);
  wait();
  admitter.decide();
  wait();
  return round;
}

}  // namespace dynemb::cuda
