// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/exchange/push.cu: a round around a lookup that writes rows to peers.
#include <algorithm>

#include "cuda/exchange/launch.h"
#include "cuda/exchange/peer_group.h"
#include "cuda/exchange/round.cuh"

namespace dynemb::cuda {
namespace {

// What all devices must agree on: how the parts of their arrays are laid out.
uint32_t program_of(LookupArgs const& args, bool const* pushed, char const* first) {
  ProgramHash hash;
  for (int32_t f = 0; f < args.num_features; ++f) {
    if (!pushed[f]) continue;
    auto const& feature = args.features[f];
    hash.add(feature.num_bags);
    hash.add(feature.places.stride);
    hash.add(static_cast<char const*>(feature.rows) - first);
  }
  return hash.value;
}

}  // namespace

cudaError_t begin_push(PeerDevices const& given, bool const* pushed, LookupArgs* args,
                       cudaStream_t stream) {
  PeersRef peers{};
  if (!find_peers(given.devices, given.num_devices, given.shards, &peers)) {
    return cudaErrorInvalidDevice;
  }
  auto const number = std::find(pushed, pushed + args->num_features, true) - pushed;
  // Any address in the array will do: the same row has the same place in all of them.
  void const* array = nullptr;
  PushedRows rows;
  if (number < args->num_features) {
    auto const& first = args->features[number];
    array = first.rows;
    rows = {first.places.stride, first.row_type == ValueType::kFloat32 ? 4 : 2};
  }
  auto const program = program_of(*args, pushed, static_cast<char const*>(array));
  for (int32_t f = 0; f < args->num_features; ++f) {
    if (!pushed[f]) continue;
    auto& places = args->features[f].places;
    places.on_peers = 1;
    places.begins = peers.boxes[peers.me]->begins;
  }
  return arrive(peers, letter_of(&array, 1, nullptr, program), 1, given.rank, stream, rows);
}

cudaError_t end_push(PeerDevices const& given, cudaStream_t stream) {
  PeersRef peers{};
  if (!find_peers(given.devices, given.num_devices, given.shards, &peers)) {
    return cudaErrorInvalidDevice;
  }
  return leave_round(peers, stream);
}

}  // namespace dynemb::cuda
