// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "cuda/exchange/round.cuh"
#include "cuda/grid/host.h"

namespace dynemb::cuda {
namespace {

struct ArriveCall {
  PeersRef peers;
  Letter letter;
  int32_t num_arrays;
  int32_t const* rank;
  PushedRows pushed;
};

// Turns the addresses of a letter from another process into those of this process.
__device__ __forceinline__ void shift_letter(Letter* letter, int32_t num_arrays, int64_t shift) {
  for (int32_t i = 0; i < num_arrays; ++i) {
    auto const address = __ldcv(&letter->arrays[i]);
    letter->arrays[i] = address == 0 ? 0 : address + static_cast<uint64_t>(shift);
  }
  auto const address = __ldcv(&letter->counters);
  letter->counters = address == 0 ? 0 : address + static_cast<uint64_t>(shift);
}

// Says where this GPU's part of a peer's array begins, counted from its own array.
__device__ __forceinline__ int64_t begin_at(uint64_t peers_array, ArriveCall const& call) {
  auto const bytes = static_cast<int64_t>(peers_array - call.letter.arrays[0]);
  return bytes / call.pushed.element_bytes + call.peers.me * call.pushed.stride;
}

__global__ void __launch_bounds__(kMostExchanged)
    dynemb_arrive_kernel(__grid_constant__ ArriveCall const call) {
  __shared__ uint32_t round;
  auto const& peers = call.peers;
  auto* const mine = peers.boxes[peers.me];
  auto const thread = static_cast<int>(threadIdx.x);
  if (thread == 0) round = ++mine->round;
  __syncthreads();
  if (*call.rank != peers.me) give_up(peers, kOtherRank, *call.rank, round);
  for (int peer = 0; peer < peers.shards; ++peer) {
    auto& letter = peers.boxes[peer]->letters[peers.me];
    if (thread < call.num_arrays) letter.arrays[thread] = call.letter.arrays[thread];
    if (thread == 0) letter.counters = call.letter.counters, letter.program = call.letter.program;
  }
  __threadfence_system();
  __syncthreads();
  if (thread >= peers.shards) return;
  raise_flag(&peers.boxes[thread]->arrived[peers.me], round);
  wait_for_flag(peers, &mine->arrived[thread], thread, round);
  if (__ldcv(&mine->letters[thread].program) != call.letter.program) {
    give_up(peers, kOtherProgram, thread, round);
  }
  auto const shift = peers.shifts[thread];
  if (shift != 0) shift_letter(&mine->letters[thread], call.num_arrays, shift);
  if (call.pushed.element_bytes == 0) return;
  mine->begins[thread] = begin_at(__ldcv(&mine->letters[thread].arrays[0]), call);
}

__global__ void __launch_bounds__(kMostPeers)
    dynemb_leave_kernel(__grid_constant__ PeersRef const peers) {
  leave(peers);
}

// Whether other processes can read all that a letter names.
bool is_shared(PeersRef const& peers, Letter const& letter, int32_t num_arrays) {
  if (peers.shared_bytes == 0) return true;
  auto const lies_inside = [&](uint64_t address) {
    return address == 0 || address - peers.shared_begin < peers.shared_bytes;
  };
  return lies_inside(letter.counters) &&
         std::all_of(letter.arrays, letter.arrays + num_arrays, lies_inside);
}

}  // namespace

cudaError_t arrive(PeersRef const& peers, Letter const& letter, int32_t num_arrays,
                   int32_t const* rank, cudaStream_t stream, PushedRows const& pushed) {
  if (!is_shared(peers, letter, num_arrays)) return cudaErrorInvalidDevicePointer;
  ArriveCall const call{peers, letter, num_arrays, rank, pushed};
  return launch(dynemb_arrive_kernel, 1, stream, call, 0, kMostExchanged);
}

cudaError_t leave_round(PeersRef const& peers, cudaStream_t stream) {
  return launch(dynemb_leave_kernel, 1, stream, peers, 0, kMostPeers);
}

}  // namespace dynemb::cuda
