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
};

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
}

__global__ void __launch_bounds__(kMostPeers)
    dynemb_leave_kernel(__grid_constant__ PeersRef const peers) {
  leave(peers);
}

}  // namespace

cudaError_t arrive(PeersRef const& peers, Letter const& letter, int32_t num_arrays,
                   int32_t const* rank, cudaStream_t stream) {
  ArriveCall const call{peers, letter, num_arrays, rank};
  return launch(dynemb_arrive_kernel, 1, stream, call, 0, kMostExchanged);
}

cudaError_t leave_round(PeersRef const& peers, cudaStream_t stream) {
  return launch(dynemb_leave_kernel, 1, stream, peers, 0, kMostPeers);
}

}  // namespace dynemb::cuda
