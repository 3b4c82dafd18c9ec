// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/peer_lookup.h: a lookup whose rows go to GPUs of one host.
#pragma once

#ifdef DYNEMB_CUDA

#include "cuda/exchange/launch.h"
#include "xla_ffi/handlers/exchange.h"
#include "xla_ffi/handlers/operation.h"

namespace dynemb {

// Attribute "pushed" is the number of the array whose groups of rows the devices get, in order of
// rank. Rows in other arrays stay here. What derives from it has kRun = &PeerLookup::run.
template <class Operation>
struct PeerLookup : Operation {
  static auto bind() {
    return Operation::bind()
        .template Attr<IntAttr>("devices")
        .template Attr<int64_t>("shards")
        .template Attr<int64_t>("pushed");
  }

  struct Args {
    LookupArgs* lookup;
    PeerDevices peers;
    bool pushed[kMaxFeatures];
  };
  Args args{};

  void read(BufferReader& reader, TableAttrs const& attrs, IntAttr features, IntAttr devices,
            int64_t shards, int64_t pushed) {
    Operation::read(reader, attrs, features);
    auto const rank = reader.next_arg(BufferRule::kCount);
    args.lookup = &(this->Operation::args);
    args.peers = {devices.begin(), static_cast<int64_t>(devices.size()), shards,
                  data<int32_t>(rank)};
    reader.expect(are_groups(devices, shards), "devices must be groups of up to 8");
    if (reader.failed()) return;
    FeatureRef const* first = nullptr;
    for (int32_t f = 0; f < args.lookup->num_features; ++f) {
      auto const& feature = args.lookup->features[f];
      auto const array = features[size_t(f * kNumFeatureFields + kFeatureRows + kRowsArray)];
      args.pushed[f] = array == pushed && feature.num_bags > 0;
      if (!args.pushed[f]) continue;
      if (first == nullptr) first = &feature;
      reader.expect(feature.places.group * shards == feature.num_bags &&
                        feature.places.stride == first->places.stride,
                    "a peer has one group of rows of each feature");
    }
  }

  static ffi::Error run(backend::Context& context, Args& args, backend::Scratch scratch) {
    auto const begun = cuda::begin_push(args.peers, args.pushed, args.lookup, context.stream);
    if (begun != cudaSuccess) return error_of_peers("lookup", begun);
    auto error = Operation::kRun(context, *args.lookup, scratch);
    if (error.failure()) return error;
    return error_of_peers("lookup", cuda::end_push(args.peers, context.stream));
  }
};

}  // namespace dynemb

#endif
