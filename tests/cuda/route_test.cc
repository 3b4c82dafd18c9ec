// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/route_test.cc: the kernels around the sort of a route, beside a sort by all bits: ids
// whose hashes meet, in short runs and in runs over many tiles; more parts than a kernel takes.
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "cuda/route/run.cuh"
#include "tests/core/route_truth.h"
#include "tests/cuda/scratch_memory.h"

namespace {

using namespace dynemb;
using namespace dynemb::cuda;
using namespace dynemb::testing;

// What the kernel of the keys has counted and cleared.
void check_tally(SortBuffers<uint32_t> const& buffers, RouteSegments const& segments) {
  auto const& tally = buffers.tally;
  for (uint32_t i = 0; i < tally.num_cleared; ++i) CHECK(tally.counts[i] == 0);
  for (int32_t s = 0; s < segments.count; ++s) {
    std::vector<uint32_t> counts(kDigits);
    for (auto i = segments.first_item[s]; i < segments.first_item[s + 1]; ++i) {
      ++counts[buffers.keys[0][i] % kDigits];
    }
    for (auto row = segments.first_row[s]; row < segments.first_row[s + 1]; ++row) {
      for (size_t d = 0; d < kDigits; ++d) counts[d] -= tally.rows[row * kDigits + d];
    }
    for (auto const left : counts) CHECK(left == 0);
  }
}

cudaError_t sort_on_host(SortBuffers<uint32_t> const& buffers, SortLayout const& /*layout*/,
                         RouteSegments const& segments, int* sorted) {
  check_tally(buffers, segments);
  *sorted = 1;
  auto const* const keys = buffers.keys[0];
  for (int32_t s = 0; s < segments.count; ++s) {
    auto const begin = segments.first_item[s], end = segments.first_item[s + 1];
    auto* const items = buffers.items[1];
    for (auto i = begin; i < end; ++i) items[i] = i;
    std::stable_sort(items + begin, items + end,
                     [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
    for (auto i = begin; i < end; ++i) buffers.keys[1][i] = keys[items[i]];
  }
  return cudaSuccess;
}

void check(RouteBatch const& batch) {
  RouteResult result(batch);
  auto const args = args_of(batch, result);
  dynemb::testing::ScratchMemory const memory(bytes_of_route(args));
  CHECK(run_route(args, memory.first(), nullptr, sort_on_host) == cudaSuccess);
  CHECK(result == true_route(batch));
}

// Runs begin and end anywhere in a tile, and have every length around that of a block.
void check_runs(std::mt19937_64& random) {
  RouteBatch batch;
  std::vector<Key> ids;
  uint64_t upper = 1;
  for (size_t const length : {2, 3, 31, 33, 255, 256, 257, 300, 1500}) {
    for (size_t const distinct : {2, 7, 300}) {
      auto const run = alternating_ids(length, ++upper, std::min(distinct, length));
      ids.insert(ids.end(), run.begin(), run.end());
      ids.push_back(id_of_hash(++upper << 32));
    }
  }
  std::shuffle(ids.begin(), ids.end(), random);
  batch.add(ids, 4);
  check(batch);
}

// One run, over several tiles: as it is, and with a long stretch of one id before the other.
void check_long_run(size_t size, uint64_t upper, size_t distinct) {
  RouteBatch batch;
  auto ids = alternating_ids(size, upper, distinct);
  batch.add(std::vector<Key>(1500, kEmptyKey), 3, 1);
  batch.add(ids, 8);
  std::sort(ids.begin(), ids.end());
  ids.insert(ids.end(), {kEmptyKey, ids[0], ids[1], kEmptyKey});
  batch.add(ids, 2);
  check(batch);
}

// So many ids that tiles are large.
void check_large_tiles(std::mt19937_64& random) {
  RouteBatch batch;
  batch.add(hard_ids(random, 150'000, 30'000), 8);
  auto ids = hard_ids(random, 140'000, 50);
  auto const run = alternating_ids(5000, 0xabcdef, 3);
  ids.insert(ids.begin() + 9000, run.begin(), run.end());
  batch.add(ids, 4);
  check(batch);
}

void check_all() {
  std::mt19937_64 random(0);
  shuffle_blocks = [&](auto& order) { std::shuffle(order.begin(), order.end(), random); };
  for (size_t parts = 1; parts < 10; ++parts) check(random_batch(random, parts, 2500));
  check(random_batch(random, 70, 60));
  check(random_batch(random, 200, 9));
  for (int i = 0; i < 4; ++i) check_runs(random);
  check_long_run(4000, 0x12345678, 2);
  check_long_run(3000, 0xffffffff, 2);
  check_long_run(3000, 77, 1000);
  check_large_tiles(random);
}

}  // namespace

int main() {
  with_each_hash(check_all);
  std::puts("kernels of a route: ok");
}
