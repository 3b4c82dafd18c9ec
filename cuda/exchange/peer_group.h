// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/exchange/peer_group.h: GPUs of one host that read each other's memory.
//
// A group is made once, while a program is traced, and never freed: programs hold its mailboxes.
// Other processes map the memory of their GPUs at addresses of their own, so what a letter says of
// an array is shifted on arrival.
// Where a wait is given up, a thread of the host prints which GPU did not arrive, since the error
// that the driver returns after that names nothing.
#pragma once

#include <cstdint>

namespace dynemb::cuda {

struct PeersRef;

// Finds the group, out of several of `shards` GPUs side by side, that the current device is in.
// Returns false if it is in none that is prepared.
bool find_peers(int64_t const* ids, int64_t num_ids, int64_t shards, PeersRef* peers);

}  // namespace dynemb::cuda
