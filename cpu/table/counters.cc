// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/table/counters.cc: numbers that a program has found are added to the counters of tables.
#include "cpu/table_ops.h"

namespace dynemb::cpu {

void add_to_counters(AddToCountersArgs const& args, ThreadPool const& /*pool*/) {
  for (int32_t i = 0; i < args.num_additions; ++i) {
    *args.additions[i].counter += *args.additions[i].number;
  }
}

}  // namespace dynemb::cpu
