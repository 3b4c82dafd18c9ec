// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/exchange/push.cu: a round around a lookup that writes rows to peers.
#include "cuda/exchange/launch.h"
#include "cuda/exchange/peer_group.h"
#include "cuda/exchange/round.cuh"

namespace dynemb::cuda {
namespace {

// What all devices must agree on: how the parts of their arrays are laid out.
uint32_t program_of(LookupArgs const& args) {
  ProgramHash hash;
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto const& feature = args.features[f];
    hash.add(feature.num_bags);
    hash.add(feature.places.stride);
    hash.add(static_cast<char const*>(feature.rows) -
             static_cast<char const*>(args.features[0].rows));
  }
  return hash.value;
}

}  // namespace

cudaError_t begin_push(PeerDevices const& given, LookupArgs* args, cudaStream_t stream) {
  PeersRef peers{};
  if (!find_peers(given.devices, given.num_devices, given.shards, &peers)) {
    return cudaErrorInvalidDevice;
  }
  auto const& first = args->features[0];
  // Any address in the array will do: the same row has the same place in all of them.
  void const* const array = first.rows;
  auto const letter = letter_of(&array, 1, nullptr, program_of(*args));
  PushedRows const rows{first.places.stride, first.row_type == ValueType::kFloat32 ? 4 : 2};
  for (int32_t f = 0; f < args->num_features; ++f) {
    auto& places = args->features[f].places;
    places.on_peers = 1;
    places.begins = peers.boxes[peers.me]->begins;
  }
  return arrive(peers, letter, 1, given.rank, stream, rows);
}

cudaError_t end_push(PeerDevices const& given, cudaStream_t stream) {
  PeersRef peers{};
  if (!find_peers(given.devices, given.num_devices, given.shards, &peers)) {
    return cudaErrorInvalidDevice;
  }
  return leave_round(peers, stream);
}

}  // namespace dynemb::cuda
