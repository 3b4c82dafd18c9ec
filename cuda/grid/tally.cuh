// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/grid/tally.cuh: events of each table, counted in shared memory, so that a million of them do
// not meet at one address of the counters.
#pragma once

#include <cstdint>

#include "cuda/grid/call.cuh"

namespace dynemb::cuda {

// All members but add() are for all threads of the block.
template <int kKinds>
struct Tally {
  using Counts = uint32_t[kMaxTables][kKinds];

  Counts& counts;  // in shared memory

  __device__ void clear() const {
    for (auto i = static_cast<int>(threadIdx.x); i < kMaxTables * kKinds; i += kThreads) {
      counts[i / kKinds][i % kKinds] = 0;
    }
    __syncthreads();
  }

  // Counts an event for an id or a row. Their sum has room: a device has fewer than 2^31 slots, and
  // a call fewer than 2^30 ids (xla_ffi/limits.h).
  __device__ void add(int32_t table, int kind, uint32_t events = 1) const {
    atomicAdd(&counts[table][kind], events);
  }

  // Any number of events: the sum has 64 bits, of which the kind `carries` has the upper half.
  __device__ void add_many(int32_t table, int kind, int carries, uint32_t events) const {
    auto const before = atomicAdd(&counts[table][kind], events);
    if (before + events < before) atomicAdd(&counts[table][carries], 1u);
  }

  // The total of each table is there when all threads of the block have arrived.
  template <class Function>
  __device__ void for_each_table(int32_t num_tables, Function const& function) const {
    __syncthreads();
    auto const table = static_cast<int32_t>(threadIdx.x);
    if (table < num_tables) function(table, counts[table]);
  }
};

}  // namespace dynemb::cuda
