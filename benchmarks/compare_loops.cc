// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// benchmarks/compare_loops.cc: builds of the CPU loops in one process, which take turns of five
// steps. Whatever else a machine does disturbs all of them alike, so their fastest tenth tells
// apart in seconds what two runs of a benchmark cannot:
//
//     make loops && cp build/ctest/libstep_loops.so /tmp/before.so
//     (change something) && make loops && cd build/ctest
//     ./compare_loops p zipf find,sgd 2 3.0 /tmp/before.so ./libstep_loops.so
//
// Arguments: a case of benchmarks/suite/workloads.py, zipf or uniform, works, threads, seconds for
// each work, builds. Prints of each work and build the tenth and the fiftieth percentile, and the
// sum of the rows that the first table returned last, which should be the same. One build given
// twice differs by up to 4 %, by where its tables happen to lie.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/step_case.h"
#include "benchmarks/step_loops.h"

using namespace dynemb::bench;

namespace {

constexpr int kStepsInTurn = 5;

struct Build {
  std::string name;
  std::unique_ptr<StepLoops> loops;
  std::vector<double> milliseconds;
};

MakeStepLoops load(char const* path) {
  auto* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  auto* const function = library == nullptr ? nullptr : dlsym(library, "make_step_loops");
  if (function == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  return reinterpret_cast<MakeStepLoops>(function);
}

double now() {
  auto const time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(time).count();
}

void measure(std::vector<Build>& builds, std::string const& work, double seconds) {
  for (auto& build : builds) {
    build.milliseconds.clear();
    for (int batch = 0; batch < kBatches; ++batch) build.loops->run(work, batch);
  }
  for (auto const end = now() + seconds * 1e3; now() < end;) {
    for (auto& build : builds) {
      for (int i = 0; i <= kStepsInTurn; ++i) {
        auto const begin = now();
        build.loops->run(work, i % kBatches);
        if (i > 0) build.milliseconds.push_back(now() - begin);  // the first warms the caches
      }
    }
  }
}

double percentile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  auto const uniform = argc >= 3 && std::string(argv[2]) == "uniform";
  auto const is_known =
      argc >= 7 && kCases.count(argv[1]) == 1 && (uniform || std::string(argv[2]) == "zipf");
  if (!is_known) {
    std::fprintf(stderr, "usage: %s CASE zipf|uniform WORK,... THREADS SECONDS BUILD.so ...\n",
                 argv[0]);
    return 2;
  }
  std::vector<Build> builds;
  for (int i = 6; i < argc; ++i) {
    auto* const loops = load(argv[i])(argv[1], uniform, std::atoi(argv[4]));
    builds.push_back({argv[i], std::unique_ptr<StepLoops>(loops), {}});
  }
  std::istringstream works(argv[3]);
  for (std::string work; std::getline(works, work, ',');) {
    if (!is_work(work)) {
      std::fprintf(stderr, "unknown work '%s': find, lookup, or an optimizer\n", work.c_str());
      return 2;
    }
    measure(builds, work, std::atof(argv[5]));
    for (auto& build : builds) {
      std::printf("%-2s %-16s %.3f %.3f ms, rows sum up to %.6g  %s\n", argv[1], work.c_str(),
                  percentile(build.milliseconds, 0.1), percentile(build.milliseconds, 0.5),
                  build.loops->sum_of_rows(), build.name.c_str());
    }
    std::fflush(stdout);
  }
  return 0;
}
