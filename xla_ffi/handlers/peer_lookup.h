// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/peer_lookup.h: a lookup that writes rows to GPUs of one host.
#pragma once

#ifdef DYNEMB_CUDA

#include "cuda/exchange/launch.h"
#include "xla_ffi/handlers/exchange.h"
#include "xla_ffi/handlers/operation.h"

namespace dynemb {

// Rows of all features share one array, and device g gets group g of each feature. What derives
// from it has kRun = &PeerLookup::run.
template <class Operation>
struct PeerLookup : Operation {
  static auto bind() {
    return Operation::bind().template Attr<IntAttr>("devices").template Attr<int64_t>("shards");
  }

  struct Args {
    LookupArgs* lookup;
    PeerDevices peers;
  };
  Args args{};

  void read(BufferReader& reader, TableAttrs const& attrs, IntAttr features, IntAttr devices,
            int64_t shards) {
    Operation::read(reader, attrs, features);
    auto const rank = reader.next_arg(BufferRule::kCount);
    args.lookup = &(this->Operation::args);
    args.peers = {devices.begin(), static_cast<int64_t>(devices.size()), shards,
                  data<int32_t>(rank)};
    reader.expect(are_groups(devices, shards), "devices must be groups of up to 8");
    if (reader.failed()) return;
    auto const& call = *args.lookup;
    reader.expect(call.num_features > 0, "there are no rows for peers");
    for (int32_t f = 0; f < call.num_features; ++f) {
      auto const& places = call.features[f].places;
      auto const array = features[size_t(f * kNumFeatureFields + kFeatureRows + kRowsArray)];
      reader.expect(array == 0 && places.group > 0 &&
                        places.group * shards == call.features[f].num_bags &&
                        places.stride == call.features[0].places.stride,
                    "a peer has one group of rows of each feature, all in one array");
    }
  }

  static ffi::Error run(backend::Context& context, Args& args, backend::Scratch scratch) {
    auto const begun = cuda::begin_push(args.peers, args.lookup, context.stream);
    if (begun != cudaSuccess) return error_of_peers("lookup", begun);
    auto error = Operation::kRun(context, *args.lookup, scratch);
    if (error.failure()) return error;
    return error_of_peers("lookup", cuda::end_push(args.peers, context.stream));
  }
};

}  // namespace dynemb

#endif
