// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/distinct_test.cc: the distinct numbers of a batch are the same on a GPU as on a CPU,
// which tests/ops/test_distinct.py compares with NumPy. Batches of one tile and of several, tiles
// of both sizes, prefixes without a value anywhere, numbers that have no row.
#include "cuda/tensor_train/distinct.cuh"

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "cpu/table_ops.h"
#include "tests/cuda/scratch_memory.h"

namespace {

using namespace dynemb;
using namespace dynemb::cuda;

struct Sizes {
  int items;
  uint32_t limit, suffixes;
  int prefixes;
  uint32_t most;  // numbers are below this
};

// What one platform makes of a batch.
struct Results {
  std::vector<uint32_t> values;
  std::vector<int32_t> inverse, ranks, positions, count, starts, of_suffix;

  explicit Results(Sizes const& sizes)
      : values(size_t(sizes.items), 77),
        inverse(size_t(sizes.items), 77),
        ranks(inverse),
        positions(inverse),
        count(1, 77),
        starts(size_t(sizes.prefixes) + 1, 77),
        of_suffix(inverse) {}

  DistinctArgs args(Sizes const& sizes, std::vector<uint32_t> const& numbers) {
    return {sizes.items,      numbers.data(), sizes.limit,    sizes.suffixes,
            sizes.prefixes,   values.data(),  inverse.data(), ranks.data(),
            positions.data(), count.data(),   starts.data(),  of_suffix.data()};
  }

  bool operator==(Results const& other) const {
    return values == other.values && inverse == other.inverse && ranks == other.ranks &&
           positions == other.positions && count == other.count && starts == other.starts &&
           of_suffix == other.of_suffix;
  }
};

void check(Sizes const& sizes, std::mt19937& random) {
  std::vector<uint32_t> numbers(size_t(sizes.items));
  for (auto& number : numbers) {
    number = random() % 8 == 0 ? random() : random() % sizes.most;
    if (random() % 16 == 0) number = kNoNumber;
  }
  Results on_cpu(sizes), on_gpu(sizes);
  cpu::distinct(on_cpu.args(sizes, numbers), {});
  auto const args = on_gpu.args(sizes, numbers);
  dynemb::testing::ScratchMemory const memory(distinct_bytes(args));
  CHECK(run_distinct(args, memory.first(), nullptr) == cudaSuccess);
  CHECK(on_gpu == on_cpu);
}

}  // namespace

int main() {
  std::mt19937 random(3);
  Sizes const all[] = {
      {1, 1, 1, 1, 1},
      {1, 0, 1, 0, 9},
      {37, 35, 5, 7, 40},
      {1024, 5000, 250, 20, 5000},
      {1025, 5000, 250, 11, 5000},
      {5000, 1u << 24, 250, 3000, 700'000},
      {5000, 1u << 24, 250, 3000, 16},
      {9000, ~0u, 65'535, 70'000, ~0u},
      {(1 << 18) + 1, 40'000, 40, 1000, 40'000},
      {(1 << 18) + 4097, 10'000'000, 250, 40'000, 10'000'000},
  };
  for (auto const& sizes : all) check(sizes, random);
  std::puts("distinct: ok");
  return 0;
}
