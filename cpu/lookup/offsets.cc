// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/lookup/offsets.cc: where the bags of a jagged input begin. One pass: a bag takes a
// nanosecond.
#include "core/offsets.h"

#include "cpu/table_ops.h"

namespace dynemb::cpu {

void offsets(OffsetsArgs const& args, ThreadPool const& /*pool*/) {
  uint32_t sum = 0, malformed = 0;
  args.offsets[0] = 0;
  for (int64_t bag = 0; bag < args.num_bags; ++bag) {
    auto const length = length_of_bag(args, bag);
    malformed += is_cut(args, sum, length) ? 1 : 0;
    sum = add_lengths(args, sum, length.ids);
    args.offsets[bag + 1] = offset_of_sum(args, sum);
  }
  *args.malformed = malformed;
}

}  // namespace dynemb::cpu
