// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/exchange/push.h: a lookup whose rows go to peers, each group of them to one.
//
// Its kernels write to memory of the peers as they write to their own (RowPlaces), so the links
// work under the lookup, and no copy follows.
#pragma once

#include "core/args.h"
#include "cuda/grid/host.h"

namespace dynemb::cuda {

// Puts on the stream the wait until all peers have room for the rows, and tells the features in
// `pushed` where they are. Those lie in one array, in equal parts for all devices.
// cudaErrorInvalidDevice: this device is in no prepared group.
cudaError_t begin_push(PeerDevices const& given, bool const* pushed, LookupArgs* args,
                       cudaStream_t stream);

// Puts on the stream the wait until all rows are there.
cudaError_t end_push(PeerDevices const& given, cudaStream_t stream);

}  // namespace dynemb::cuda
