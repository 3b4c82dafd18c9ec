// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/find.cc: serving lookup.
#include "xla_ffi/handlers/feature_operation.h"
#include "xla_ffi/handlers/peer_lookup.h"
#include "xla_ffi/handlers/registrations.h"

namespace dynemb {
namespace {

struct Find {
  static constexpr auto kTarget = "dynemb_find";
  static constexpr auto kRun = &backend::find;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_features(); }

  FindArgs args;

  void read(BufferReader& reader, TableAttrs const& attrs, IntAttr features) {
    if (!set_counts(reader, args, attrs, features)) return;
    args.given = nullptr;
    args.stamps = nullptr;
    auto const seeded = any_table<InitializerKind>(attrs.tables, kTableEvalInitializer, is_seeded);
    read_tables(reader, attrs, {true, false, seeded, nullptr, true}, false, args.num_tables,
                args.tables);
    auto const call = features_of(features, args);
    read_lookups(reader, call, false);
    check_index_parts(reader, call);
  }
};

#ifdef DYNEMB_CUDA
struct FindOfPeers : PeerLookup<Find> {
  static constexpr auto kTarget = "dynemb_peer_find";
  static constexpr auto kRun = &PeerLookup::run;
};
#endif

}  // namespace

#ifdef DYNEMB_CUDA
Registration peer_find_registration() { return registration_of<FindOfPeers>(); }
#endif
Registration find_registration() { return registration_of<Find>(); }

}  // namespace dynemb
