// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/exchange/round.cuh: how a round between GPUs begins and ends.
//
// One block tells all peers where this GPU's arrays are, and waits for their letters. Then many
// blocks read what is for this GPU, or write what is for others. The last of them to end tells the
// peers so and waits for them: what comes next may overwrite the arrays, or read them.
#pragma once

#include <cstdint>

#include "cuda/exchange/mailbox.cuh"
#include "cuda/grid/host.h"

namespace dynemb::cuda {

inline Letter letter_of(void const* const* arrays, int32_t num_arrays, void const* counters,
                        uint32_t program) {
  Letter letter{};
  for (int32_t i = 0; i < num_arrays; ++i) letter.arrays[i] = reinterpret_cast<uint64_t>(arrays[i]);
  letter.counters = reinterpret_cast<uint64_t>(counters);
  letter.program = program;
  return letter;
}

// Rows that a kernel writes to peers: the parts of the first array, one for each device.
struct PushedRows {
  int64_t stride = 0;         // elements of a part
  int32_t element_bytes = 0;  // 0: there are none
};

// The address of an array of a peer, as its letter says. After `arrive`.
template <class T>
__device__ __forceinline__ T* address_of(PeersRef const& peers, int peer, int array) {
  return reinterpret_cast<T*>(__ldcv(&peers.boxes[peers.me]->letters[peer].arrays[array]));
}

// The same of the first `count` arrays of all peers, for all threads of the block.
template <class T>
__device__ __forceinline__ void fill_addresses(PeersRef const& peers, int32_t count,
                                               T* (*addresses)[kMostPeers]) {
  for (int i = static_cast<int>(threadIdx.x); i < count * peers.shards; i += kThreads) {
    auto const array = i / peers.shards, peer = i % peers.shards;
    addresses[array][peer] = address_of<T>(peers, peer, array);
  }
  __syncthreads();
}

// Puts the block on the stream that writes the letter to all peers and waits for theirs.
cudaError_t arrive(PeersRef const& peers, Letter const& letter, int32_t num_arrays,
                   int32_t const* rank, cudaStream_t stream, PushedRows const& pushed = {});

// Puts the end of a round on the stream, where a kernel has no last block that ends it.
cudaError_t leave_round(PeersRef const& peers, cudaStream_t stream);

// Says to all peers that this GPU is done with their arrays, and waits until they say the same.
__device__ __forceinline__ void leave(PeersRef const& peers) {
  auto* const mine = peers.boxes[peers.me];
  auto const thread = static_cast<int>(threadIdx.x);
  if (thread == 0) mine->finished = 0;  // for the next round
  if (thread >= peers.shards) return;
  auto const round = mine->round;
  raise_flag(&peers.boxes[thread]->read[peers.me], round);
  wait_for_flag(peers, &mine->read[thread], thread, round);
}

// All threads of a block call this when they have no more work.
__device__ __forceinline__ void leave_with_last_block(PeersRef const& peers) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(&peers.boxes[peers.me]->finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last) leave(peers);
}

// The same after writes to memory of the peers, which read them when this GPU has left.
__device__ __forceinline__ void leave_after_writes(PeersRef const& peers) {
  __threadfence_system();
  leave_with_last_block(peers);
}

// FNV-1a over what all devices must agree on.
struct ProgramHash {
  uint32_t value = 2166136261u;
  void add(int64_t number) {
    for (int i = 0; i < 8; ++i, number >>= 8) value = (value ^ (number & 0xff)) * 16777619u;
  }
};

}  // namespace dynemb::cuda
