// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/exchange/mailbox.cuh: how the GPUs of a group wait for each other, by flags in memory that
// all of them reach.
//
// Rounds are counted on the device, so a recorded graph may be replayed, and each round carries the
// addresses of its arrays, so that nothing is stale when an array has moved.
#pragma once

#include <cstdint>

#include "core/exchange.h"

namespace dynemb::cuda {

// What a GPU tells another one in a round.
struct Letter {
  uint64_t arrays[kMostExchanged];  // addresses of what it sends
  uint64_t counters;
  uint32_t program;  // which exchange of the program this is, as far as a hash tells
  uint32_t padding;
};

// The memory of one GPU that its peers write to.
struct Mailbox {
  Letter letters[kMostPeers];    // by sender
  uint32_t arrived[kMostPeers];  // the round in which each sender has written its letter,
  uint32_t read[kMostPeers];     // and in which it has read all that it needs
  uint32_t round;                // the last one of this GPU
  uint32_t finished;             // blocks of the kernel that copies
  int64_t begins[kMostPeers];    // where this GPU writes rows for each peer (RowPlaces)
};

// Why a wait was given up, in memory of the host; see peer_group.h.
struct GivenUp {
  uint32_t reason;  // 0: it was not
  uint32_t waiting;
  uint32_t missing;
  uint32_t round;
};
enum GivenUpReason : uint32_t { kNotArrived = 1, kOtherProgram = 2, kOtherRank = 3 };

// A GPU's view of its group.
struct PeersRef {
  Mailbox* boxes[kMostPeers];  // by rank
  GivenUp* given_up;
  uint64_t patience;  // nanoseconds
  int32_t me;
  int32_t shards;
  int64_t shifts[kMostPeers];  // what makes an address of a peer's process one of this process
  uint64_t shared_begin;       // the memory of this GPU that other processes map,
  uint64_t shared_bytes;       // which all that it sends lies in; 0: there are none
};

__device__ __forceinline__ uint64_t nanoseconds_of_gpu() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// A thread that reads the flag also reads what this one has read and written before.
__device__ __forceinline__ void raise_flag(uint32_t* flag, uint32_t round) {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(round) : "memory");
}

__device__ __forceinline__ uint32_t flag_of(uint32_t const* flag) {
  uint32_t round;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(round) : "l"(flag) : "memory");
  return round;
}

// Ends the program: its arrays would be wrong. The host says why (peer_group.h).
__device__ __forceinline__ void give_up(PeersRef const& peers, uint32_t reason, int missing,
                                        uint32_t round) {
  volatile auto* const record = peers.given_up;
  record->waiting = static_cast<uint32_t>(peers.me);
  record->missing = static_cast<uint32_t>(missing);
  record->round = round;
  __threadfence_system();
  record->reason = reason;
  __threadfence_system();
  __trap();
}

// Waits until a peer has raised a flag to this round, or a later one: it may be ahead.
__device__ __forceinline__ void wait_for_flag(PeersRef const& peers, uint32_t const* flag, int peer,
                                              uint32_t round) {
  auto const begin = nanoseconds_of_gpu();
  while (static_cast<int32_t>(flag_of(flag) - round) < 0) {
    if (nanoseconds_of_gpu() - begin > peers.patience) give_up(peers, kNotArrived, peer, round);
  }
}

}  // namespace dynemb::cuda
