// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/bag_cursor.h: the bags of consecutive positions, without a division or a search for
// each.
#pragma once

#include <cstdint>

#include "core/feature_ref.h"

namespace dynemb::cpu {

class BagCursor {
 public:
  BagCursor(FeatureRef const& feature, int64_t position)
      : feature_(feature), bag_(bag_of(feature, position)) {
    set_end();
  }

  // The bag of `position`, which must not be before that of the last call.
  int64_t bag_at(int64_t position) {
    while (position >= end_ && bag_ + 1 < feature_.num_bags) {
      ++bag_;
      set_end();
    }
    return bag_;
  }

 private:
  void set_end() { end_ = bag_range(feature_, bag_).end; }

  FeatureRef const& feature_;
  int64_t bag_;
  int64_t end_ = 0;
};

}  // namespace dynemb::cpu
