// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/list.h: all optimizers, in the order of their numbers.
#pragma once

#include <cstring>
#include <iterator>
#include <type_traits>

#include "core/optimizers/adagrad.h"
#include "core/optimizers/adam.h"
#include "core/optimizers/catch_up.h"
#include "core/optimizers/counter.h"
#include "core/optimizers/cow_clip.h"
#include "core/optimizers/ftrl.h"
#include "core/optimizers/functor.h"
#include "core/optimizers/lamb.h"
#include "core/optimizers/lars.h"
#include "core/optimizers/lion.h"
#include "core/optimizers/momentum.h"
#include "core/optimizers/rmsprop.h"
#include "core/optimizers/rowwise_adagrad.h"
#include "core/optimizers/sgd.h"

namespace dynemb {

// The first four have loops of their own too (core/optimizer.h).
#define DYNEMB_FOR_EACH_OPTIMIZER(F) \
  F(Sgd)                             \
  F(Adagrad)                         \
  F(RowwiseAdagrad)                  \
  F(Adam)                            \
  F(RowCountedAdam)                  \
  F(PartialRowwiseAdam)              \
  F(Momentum)                        \
  F(Ftrl)                            \
  F(Lion)                            \
  F(Rmsprop)                         \
  F(RowwiseRmsprop)                  \
  F(Lamb)                            \
  F(PartialRowwiseLamb)              \
  F(Lars)                            \
  F(CaughtUpRowwiseAdagrad)          \
  F(CaughtUpAdam)                    \
  F(SmartAdam)                       \
  F(SmartMomentum)                   \
  F(ShrinkingRowwiseRmsprop)         \
  F(CowClipRowwiseAdagrad)           \
  F(CounterRowwiseAdagrad)

enum class OptimizerKind : int32_t {
#define DYNEMB_KIND(Name) k##Name,
  DYNEMB_FOR_EACH_OPTIMIZER(DYNEMB_KIND)
#undef DYNEMB_KIND
      kNumKinds
};

template <class Functor>
struct TypeOf {
  using Type = Functor;
};

// Calls function(TypeOf<Functor>{}) with the struct of a kind; no call for a number without one.
template <class Function>
inline void with_optimizer(OptimizerKind kind, Function const& function) {
  switch (kind) {
#define DYNEMB_CASE(Name)      \
  case OptimizerKind::k##Name: \
    return function(TypeOf<Name>{});
    DYNEMB_FOR_EACH_OPTIMIZER(DYNEMB_CASE)
#undef DYNEMB_CASE
    default:
      return;
  }
}

// The states of a row: `wide` with a number for each column come first, then `numbers` of one, the
// last `ints` of which are integers.
struct StateShape {
  int wide, numbers, ints;
};

inline StateShape state_shape(OptimizerKind kind) {
  StateShape shape{0, 0, 0};
  with_optimizer(kind, [&](auto type) {
    using Functor = typename decltype(type)::Type;
    shape = {Functor::kWide, Functor::kNumbers + Functor::kInts, Functor::kInts};
  });
  return shape;
}

// What every table gives to the loop for all optimizers, before the optimizer's own numbers. The
// summed gradient is clipped in each column, then its norm; a limit of 0 clips nothing.
enum RowHyper : int32_t { kClipValue = 0, kClipNorm, kNumRowHyper };
constexpr int kNumAnyHyper = kNumRowHyper + kMaxHyper;

constexpr int kFunctorWords = 20;

// The optimizer of one table in one update, and how its gradients are clipped.
struct alignas(16) AnyOptimizer {
  float functor[kFunctorWords];
  OptimizerKind kind;
  float clip_value, clip_norm;

  template <class Functor>
  DYNEMB_HD void hold(Functor const& given) {
    static_assert(sizeof(Functor) <= sizeof(functor), "make kFunctorWords larger");
    memcpy(functor, &given, sizeof(Functor));
  }

  template <class Functor>
  DYNEMB_HD Functor as() const {
    Functor result;
    memcpy(&result, functor, sizeof(Functor));
    return result;
  }
};

DYNEMB_HD AnyOptimizer prepare_optimizer(OptimizerKind kind, float const* hyper, uint64_t step) {
  AnyOptimizer result{};
  result.kind = kind;
  result.clip_value = hyper[kClipValue];
  result.clip_norm = hyper[kClipNorm];
  switch (kind) {
#define DYNEMB_CASE(Name)                                   \
  case OptimizerKind::k##Name:                              \
    result.hold(Name::prepare(hyper + kNumRowHyper, step)); \
    break;
    DYNEMB_FOR_EACH_OPTIMIZER(DYNEMB_CASE)
#undef DYNEMB_CASE
    default:
      break;
  }
  return result;
}

// NaN stays NaN.
DYNEMB_HD float clipped(float g, float limit) {
  if (!(limit > 0.0f)) return g;
  return g > limit ? limit : g < -limit ? -limit : g;
}

// The factor of a row's gradients that brings the root of `squares` down to the limit.
DYNEMB_HD float norm_factor(float squares, float limit) {
  auto const norm = approximate_root(squares);
  return norm > limit ? approximate_quotient(limit, norm) : 1.0f;
}

}  // namespace dynemb
