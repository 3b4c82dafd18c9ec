// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/lamb.h: LAMB (You et al., 2020) with a row as its layer, and with one second
// moment a row.
#pragma once

#include "core/optimizers/adam.h"

namespace dynemb {

struct Lamb : AdamNumbers<Lamb> {
  static constexpr char const* kName = "lamb";
  static constexpr int kWide = 2;  // mu, nu
  static constexpr int kSums = 2;

  DYNEMB_HD int stages() const { return 1; }

  DYNEMB_HD float direction(float w, float mu, float nu) const {
    auto const root = approximate_root(nu * moments.correction2) + epsilon;
    return approximate_quotient(mu * moments.correction1, root) + weight_decay * w;
  }

  template <int k>
  DYNEMB_HD void add(RowFactors const&, float w, float g, float const* wide, RowSums2& sums) const {
    auto const r = direction(w, moments.first(wide[0], g), moments.second(wide[1], g));
    sums.a += w * w;
    sums.b += r * r;
  }

  template <int k>
  DYNEMB_HD void finish(RowSums2 const& sums, float, RowNumbers&, RowFactors& f) const {
    f.of[0] = learning_rate * trust_ratio(sums.a, sums.b);
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float* wide) const {
    wide[0] = moments.first(wide[0], g);
    wide[1] = moments.second(wide[1], g);
    return w - f.of[0] * direction(w, wide[0], wide[1]);
  }
};

struct PartialRowwiseLamb : AdamNumbers<PartialRowwiseLamb> {
  static constexpr char const* kName = "partial_rowwise_lamb";
  static constexpr int kWide = 1;     // mu
  static constexpr int kNumbers = 1;  // nu
  static constexpr int kSums = 2;

  DYNEMB_HD int stages() const { return 2; }

  DYNEMB_HD float direction(RowFactors const& f, float w, float mu) const {
    return approximate_quotient(mu * moments.correction1, f.of[0]) + weight_decay * w;
  }

  template <int k>
  DYNEMB_HD void add(RowFactors const& f, float w, float g, float const* wide,
                     RowSums2& sums) const {
    if (k == 0) {
      sums.a += g * g;
    } else {
      auto const r = direction(f, w, moments.first(wide[0], g));
      sums.a += w * w;
      sums.b += r * r;
    }
  }

  template <int k>
  DYNEMB_HD void finish(RowSums2 const& sums, float dim, RowNumbers& row, RowFactors& f) const {
    if (k == 0) {
      row.of[0] = moments.second_of_mean(row.of[0], approximate_quotient(sums.a, dim));
      f.of[0] = approximate_root(row.of[0] * moments.correction2) + epsilon;
    } else {
      f.of[1] = learning_rate * trust_ratio(sums.a, sums.b);
    }
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float* wide) const {
    wide[0] = moments.first(wide[0], g);
    return w - f.of[1] * direction(f, w, wide[0]);
  }
};

}  // namespace dynemb
