// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/send_bags.cc: ids of bags, each to its owner.
#ifdef DYNEMB_CUDA

#include "cuda/exchange/launch.h"
#include "xla_ffi/features.h"
#include "xla_ffi/handlers/exchange.h"
#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/registrations.h"
#include "xla_ffi/handlers/route_part.h"
#include "xla_ffi/limits.h"

namespace dynemb {
namespace {

struct SendBags {
  static constexpr auto kTarget = "dynemb_send_bags";
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_peers().Attr<IntAttr>("parts"); }

  cuda::SendBagsCall args{};

  void read(BufferReader& reader, IntAttr devices, int64_t shards, IntAttr parts) {
    if (!reader.records(RecordRule::kParts, parts)) return;
    args.num_features = count_rows(parts, kNumPartFields);
    if (!reader.expect(args.num_features <= kMostExchanged, "a call has at most 64 features") ||
        !reader.expect(are_groups(devices, shards), "devices must be groups of up to 8")) {
      return;
    }
    for (int32_t f = 0; f < args.num_features; ++f) {
      reader.at("feature ", f);
      auto const part = route_part(parts.begin() + f * kNumPartFields);
      reader.expect(part.has_value(), "each bucket of a part must have an owner");
      if (part.has_value()) args.parts[f] = *part;
      read_feature(reader, f, shards);
    }
    auto const rank = reader.next_arg(BufferRule::kCount);
    args.peers = {devices.begin(), static_cast<int64_t>(devices.size()), shards,
                  data<int32_t>(rank)};
  }

  void read_feature(BufferReader& reader, int32_t f, int64_t shards) {
    reader.sizes().forget(kNumIds);
    FeatureRef ids{};
    set_ids(reader, BufferRule::kPairs, ids);
    reader.expect(ids.num_ids == args.parts[f].size, "a part has other ids");
    reader.expect(ids.num_ids * shards <= kMostIds, "a feature has at most 2^30 - 1 ids");
    args.ids[f] = static_cast<Key const*>(ids.ids);
    reader.sizes().set(kNumIds, ids.num_ids * shards);
    args.arrived[f] = reader.next_ret(BufferRule::kPairs).untyped_data();
  }

  static ffi::Error run(backend::Context& context, cuda::SendBagsCall const& call,
                        backend::Scratch /*scratch*/) {
    return error_of_peers("send_bags", cuda::send_bags(call, context.stream));
  }
  static constexpr auto kRun = &run;
};

}  // namespace

Registration send_bags_registration() { return registration_of<SendBags>(); }

}  // namespace dynemb

#endif
