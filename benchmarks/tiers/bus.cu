// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// bus.cu: how many records cross the bus, one way and both ways, in order of address or not. No
// JAX and no tables: what a tier could reach at most.
//
//   nvcc -std=c++17 -arch=sm_90 -O3 benchmarks/tiers/bus.cu -o bus && ./bus 16
//
// The argument is GiB of host memory. Each line is JSON: a record's bytes, how many slots lie
// between two records that move, the order, and for in, out and both millions of records and GB a
// second each way with the fastest number of blocks, then millions for 8, 16, 33, 66, 132 and 264.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

namespace {

constexpr int kThreads = 256;
constexpr int kSlotsOfBucket = 128;
constexpr int kBlocks[] = {8, 16, 33, 66, 132, 264};

#define CHECK(call)                                                       \
  do {                                                                    \
    if (auto const error = (call); error != cudaSuccess) {                \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
      std::exit(1);                                                       \
    }                                                                     \
  } while (false)

struct Swap {
  uint4* homes;
  uint4* rows;     // in device memory
  int32_t pieces;  // of a record, 16 bytes each
  int64_t count;   // of either list
  int32_t const* arriving;
  int32_t const* leaving;
  bool in, out;
};

// A tile of lanes for each record; tiles take records by turns. All loads before all stores.
__global__ void __launch_bounds__(kThreads) swap(Swap call) {
  auto const lanes = min(32, call.pieces);
  auto const thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  auto const rank = static_cast<int32_t>(thread % lanes);
  auto const step = int64_t{gridDim.x} * kThreads / lanes;
  for (auto i = thread / lanes; i < call.count; i += step) {
    auto const* const from = call.homes + int64_t{call.arriving[i]} * call.pieces;
    auto* const to = call.homes + int64_t{call.leaving[i]} * call.pieces;
    auto* const row = call.rows + i * call.pieces;
    for (auto base = rank; base < call.pieces; base += 4 * lanes) {
      uint4 far[4], near[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        auto const piece = base + k * lanes;
        if (call.in && piece < call.pieces) far[k] = from[piece];
        if (call.out && piece < call.pieces) near[k] = row[piece];
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        auto const piece = base + k * lanes;
        if (call.out && piece < call.pieces) to[piece] = near[k];
        if (call.in && piece < call.pieces) row[piece] = far[k];
      }
    }
  }
}

using Times = std::vector<float>;  // milliseconds for each number of blocks

Times times_of(Swap const& call) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  Times result;
  for (auto const blocks : kBlocks) {
    auto& best = result.emplace_back(1e9f);
    for (int turn = 0; turn < 3; ++turn) {
      CHECK(cudaEventRecord(begin));
      swap<<<blocks, kThreads>>>(call);
      CHECK(cudaEventRecord(end));
      CHECK(cudaEventSynchronize(end));
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, begin, end));
      if (turn > 0) best = std::min(best, ms);
    }
  }
  return result;
}

enum class Order { kSorted, kBuckets, kRandom };
constexpr char const* kOrders[] = {"sorted", "by bucket", "random"};

// Random slots, about one of `spacing`, as in a step: arrivals, and beside each a slot of its
// bucket that leaves.
void draw(int64_t slots, int64_t spacing, Order order, std::vector<int32_t>& arriving,
          std::vector<int32_t>& leaving) {
  std::mt19937_64 random(1);
  arriving.clear();
  leaving.clear();
  for (int64_t i = 0; i < slots / spacing; ++i) {
    arriving.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(slots)));
  }
  std::sort(arriving.begin(), arriving.end());
  if (order == Order::kBuckets) {
    for (size_t i = 0; i < arriving.size();) {
      auto j = i;
      while (j < arriving.size() && arriving[j] / kSlotsOfBucket == arriving[i] / kSlotsOfBucket) {
        ++j;
      }
      std::shuffle(arriving.begin() + static_cast<int64_t>(i),
                   arriving.begin() + static_cast<int64_t>(j), random);
      i = j;
    }
  }
  if (order == Order::kRandom) std::shuffle(arriving.begin(), arriving.end(), random);
  for (auto const slot : arriving)
    leaving.push_back(slot / kSlotsOfBucket * kSlotsOfBucket + (slot * 7 + 3) % kSlotsOfBucket);
}

template <class T>
T* on_device(std::vector<T> const& values) {
  T* result = nullptr;
  CHECK(cudaMalloc(&result, values.size() * sizeof(T)));
  CHECK(cudaMemcpy(result, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return result;
}

void measure(uint4* homes, int64_t bytes, int32_t record, int64_t spacing, Order order) {
  std::vector<int32_t> arriving, leaving;
  draw(bytes / record, spacing, order, arriving, leaving);
  auto const count = static_cast<int64_t>(arriving.size());
  auto* const in = on_device(arriving);
  auto* const out = on_device(leaving);
  uint4* rows = nullptr;
  CHECK(cudaMalloc(&rows, static_cast<size_t>(count * record)));
  std::printf("{\"bytes\": %d, \"spacing\": %lld, \"records\": %lld, \"order\": \"%s\"", record,
              static_cast<long long>(spacing), static_cast<long long>(count),
              kOrders[static_cast<int>(order)]);
  for (int way = 1; way <= 3; ++way) {
    auto const times =
        times_of({homes, rows, record / 16, count, in, out, (way & 1) != 0, (way & 2) != 0});
    auto const millions = [&](float ms) { return static_cast<double>(count) / ms / 1e3; };
    auto const best = millions(*std::min_element(times.begin(), times.end()));
    std::printf(", \"%s\": [%.1f, %.1f",
                way == 1   ? "in"
                : way == 2 ? "out"
                           : "both",
                best, best * record / 1e3);
    for (auto const ms : times) std::printf(", %.1f", millions(ms));
    std::printf("]");
  }
  std::printf("}\n");
  std::fflush(stdout);
  CHECK(cudaFree(rows));
  CHECK(cudaFree(out));
  CHECK(cudaFree(in));
}

}  // namespace

int main(int argc, char** argv) {
  auto const bytes = (argc > 1 ? std::atoll(argv[1]) : 16) << 30;
  uint4* homes = nullptr;
  CHECK(cudaHostAlloc(&homes, static_cast<size_t>(bytes), cudaHostAllocPortable));
  // Rows of 64 floats, of 128 floats, with two states. Of a find of uniform ids one of 46 slots is
  // read; of a step of bench_tiers.py one of 280 moves, and with fewer places in device memory more
  // of them.
  for (auto const record : {256, 512, 1536}) {
    for (auto const spacing : {46, 140, 280}) {
      for (auto const order : {Order::kSorted, Order::kBuckets, Order::kRandom}) {
        measure(homes, bytes, record, spacing, order);
      }
    }
  }
  return 0;
}
