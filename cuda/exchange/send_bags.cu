// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/exchange/send_bags.cu: ids of bags go to all devices, each id to its owner and padding in
// its place to the others (cuda/exchange/round.cuh). Each GPU writes its ids where the others need
// them, so nothing is packed for each of them.
#include "core/keys.h"
#include "core/route.h"
#include "cuda/exchange/launch.h"
#include "cuda/exchange/peer_group.h"
#include "cuda/exchange/round.cuh"
#include "cuda/grid/host.h"

namespace dynemb::cuda {
namespace {

constexpr int kBlocksOfMultiprocessor = 4;
constexpr int kIdsOfThread = 4;
constexpr uint32_t kIdsOfChunk = kThreads * kIdsOfThread;

// The ids of a feature on this device.
struct SentBags {
  Key const* ids;
  uint32_t count;
  uint32_t first_chunk;  // counted over all features
  Owners owners;
  HashFactors hash;
};

struct SendCall {
  PeersRef peers;
  int32_t num_features;
  uint32_t num_chunks;
  SentBags features[kMostExchanged];
};

__device__ __forceinline__ void send_chunk(PeersRef const& peers, SentBags const& bags,
                                           Key* const* to, uint32_t first) {
  Key ids[kIdsOfThread];
  int32_t owners[kIdsOfThread];
#pragma unroll
  for (int i = 0; i < kIdsOfThread; ++i) {
    auto const at = first + i * kThreads + threadIdx.x;
    ids[i] = at < bags.count ? __ldcs(bags.ids + at) : kEmptyKey;
    owners[i] = owner_of(hash_key(ids[i], bags.hash), bags.owners);
  }
  auto const begin = static_cast<int64_t>(peers.me) * bags.count + first;
  for (int p = 1; p <= peers.shards; ++p) {
    auto const peer = (peers.me + p) % peers.shards;  // this one last
    auto* const there = to[peer] + begin;
#pragma unroll
    for (int i = 0; i < kIdsOfThread; ++i) {
      auto const at = i * kThreads + threadIdx.x;
      if (first + at < bags.count) __stcs(there + at, owners[i] == peer ? ids[i] : kEmptyKey);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    dynemb_send_bags_kernel(__grid_constant__ SendCall const call) {
  __shared__ Key* to[kMostExchanged][kMostPeers];
  auto const& peers = call.peers;
  fill_addresses(peers, call.num_features, to);
  for (auto chunk = blockIdx.x; chunk < call.num_chunks; chunk += gridDim.x) {
    auto const f = last_begun(call.features, call.num_features, &SentBags::first_chunk, chunk);
    auto const& bags = call.features[f];
    send_chunk(peers, bags, to[f], (chunk - bags.first_chunk) * kIdsOfChunk);
  }
  leave_after_writes(peers);
}

uint32_t program_of(SendBagsCall const& call) {
  ProgramHash hash;
  for (int32_t f = 0; f < call.num_features; ++f) {
    auto const& part = call.parts[f];
    hash.add(part.size);
    hash.add(part.owners.buckets);
    hash.add(part.owners.of_each);
  }
  return hash.value;
}

}  // namespace

cudaError_t send_bags(SendBagsCall const& call, cudaStream_t stream) {
  SendCall send{};
  auto const& given = call.peers;
  if (!find_peers(given.devices, given.num_devices, given.shards, &send.peers)) {
    return cudaErrorInvalidDevice;
  }
  send.num_features = call.num_features;
  for (int32_t f = 0; f < call.num_features; ++f) {
    auto const& part = call.parts[f];
    auto const count = static_cast<uint32_t>(part.size);
    send.features[f] = {call.ids[f], count, send.num_chunks, part.owners, part.hash};
    send.num_chunks += static_cast<uint32_t>(ceil_div(part.size, int64_t{kIdsOfChunk}));
  }
  auto const letter = letter_of(call.arrived, call.num_features, nullptr, program_of(call));
  DYNEMB_CUDA_TRY(arrive(send.peers, letter, call.num_features, given.rank, stream));
  auto const blocks = persistent_blocks(int64_t{send.num_chunks}, kBlocksOfMultiprocessor);
  return launch(dynemb_send_bags_kernel, blocks, stream, send);
}

}  // namespace dynemb::cuda
