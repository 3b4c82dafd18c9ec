// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/fuzz_handlers.cc: calls every registered target with random arrays, attributes and
// states. Half of the calls are as they should be: a handler has to take them, and what they return
// is compared with what is plain to see. Of the others a handler refuses what is wrong, and runs
// what is not. Built with sanitizers, a byte read or written where it should not be ends the
// program.
//
//   fuzz_handlers --calls 100000 --seed 7
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/fuzz/calls.h"
#include "tests/fuzz/mutations.h"

namespace dynemb::fuzz {
namespace {

struct Counts {
  int64_t calls, refused, ran, compared;
};

constexpr int kCallsOfWorld = 60;

World make_world(Random& random) {
  World world;
  for (auto count = random.between(1, 3); count > 0; --count) world.emplace_back(random);
  return world;
}

void one_call(std::string const& op, World& world, Random& random, Counts& counts) {
  auto call = make_call(op, world, random);
  auto const mutated = random.one_in(2);
  if (mutated) mutate(call, random);
  auto const error = run(call);
  ++counts.calls;
  if (error.has_value()) {
    ++counts.refused;
    if (!mutated) fprintf(stderr, "%s\n", error->c_str());
    expect(mutated, "a call as it should be was refused");
    return;
  }
  ++counts.ran;
  if (!call.check) return;
  ++counts.compared;
  call.check();
}

void fuzz(int64_t calls, uint64_t seed) {
  std::map<std::string, Counts> counts;
  auto const targets = all_targets();
  World world;
  for (int64_t i = 0; i < calls; ++i) {
    // A call depends on its world only, so that one that fails can be had alone.
    Random random(seed * 1000003 + static_cast<uint64_t>(i));
    if (i % kCallsOfWorld == 0) world = make_world(random);
    if (random.one_in(40)) world[0].damage(random);
    auto const& op = targets[static_cast<size_t>(i) % targets.size()];
    fprintf(stderr, "\r%lld %s            ", static_cast<long long>(i), op.c_str());
    one_call(op, world, random, counts[op]);
  }
  fprintf(stderr, "\n");
  printf("%-14s%10s%10s%10s%10s\n", "target", "calls", "refused", "ran", "compared");
  for (auto const& [op, c] : counts) {
    printf("%-14s%10lld%10lld%10lld%10lld\n", op.c_str(), static_cast<long long>(c.calls),
           static_cast<long long>(c.refused), static_cast<long long>(c.ran),
           static_cast<long long>(c.compared));
    // With calls enough, each target was refused, ran, and was compared.
    expect(c.calls < 60 || (c.refused > 0 && c.ran > 0 && c.compared > 0), "the mix of calls");
  }
}

int64_t option(int count, char** options, char const* name, int64_t otherwise) {
  for (int i = 1; i + 1 < count; ++i) {
    if (strcmp(options[i], name) == 0) return atoll(options[i + 1]);
  }
  return otherwise;
}

}  // namespace
}  // namespace dynemb::fuzz

int main(int count, char** options) {
  using dynemb::fuzz::option;
  dynemb::fuzz::fuzz(option(count, options, "--calls", 2000),
                     static_cast<uint64_t>(option(count, options, "--seed", 1)));
  return 0;
}
