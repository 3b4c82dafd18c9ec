// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// benchmarks/step_loops.h: what a build of the CPU loops offers to compare_loops, which may have
// several builds in one process.
#pragma once

#include <string>

namespace dynemb::bench {

// Filled tables of one case, and batches of ids.
class StepLoops {
 public:
  virtual ~StepLoops() = default;
  virtual void run(std::string const& work, int batch) = 0;
  virtual double sum_of_rows() const = 0;  // that the first table returned last
};

using MakeStepLoops = StepLoops* (*)(char const* name, bool uniform, int num_threads);

}  // namespace dynemb::bench
