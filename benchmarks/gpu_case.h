// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// benchmarks/gpu_case.h: tables of benchmarks/step_case.h on a GPU, full of their rows.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "benchmarks/step_case.h"
#include "core/args.h"
#include "cuda/launch.h"

namespace dynemb::bench {

inline void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

// Zeros on the device, until the program ends.
template <class T>
T* zeros(size_t count) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, std::max<size_t>(count, 1) * sizeof(T)));
  check(cudaMemset(memory, 0, count * sizeof(T)));
  return static_cast<T*>(memory);
}

template <class T>
void fill(T* to, std::vector<T> const& from) {
  check(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
}

__global__ void empty_index(uint8_t* index, int64_t buckets) {
  for (int64_t b = blockIdx.x; b < buckets; b += gridDim.x) {
    auto* const entries = reinterpret_cast<Entry*>(index + b * kBucketBytes + kEntriesOffset);
    entries[threadIdx.x].key = kEmptyKey;
  }
}

inline TableRef make_table(Case const& c, uint64_t* counters) {
  auto table = describe_table(c);
  table.index = zeros<uint8_t>(c.index_bytes());
  empty_index<<<1024, kBucketCapacity>>>(table.index, c.buckets());
  table.values = zeros<float>(c.slots() * static_cast<size_t>(c.dim));
  table.counters = counters;
  return table;
}

// All rows of a table.
inline void insert_all(Case const& c, TableRef const& table, int32_t number) {
  auto* const ids = zeros<Key>(static_cast<size_t>(c.rows));
  auto* const slots = zeros<int32_t>(static_cast<size_t>(c.rows));
  fill(ids, all_ids(c, number));
  LookupArgs args{};
  args.num_tables = args.num_features = 1;
  args.tables[0] = table;
  args.features[0] = describe_filling(c);
  args.features[0].ids = ids;
  args.features[0].slots = slots;
  auto* const scratch = zeros<char>(cuda::lookup_scratch_bytes(args));
  check(cuda::lookup(args, scratch, nullptr));
  check(cudaDeviceSynchronize());
  for (void* const memory :
       {static_cast<void*>(ids), static_cast<void*>(slots), static_cast<void*>(scratch)}) {
    check(cudaFree(memory));
  }
}

}  // namespace dynemb::bench
