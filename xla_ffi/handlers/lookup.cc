// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/lookup.cc: training lookup.
#include "xla_ffi/handlers/feature_operation.h"
#include "xla_ffi/handlers/peer_lookup.h"
#include "xla_ffi/handlers/registrations.h"

namespace dynemb {
namespace {

bool is_set(int32_t field) { return field != 0; }

struct Lookup {
  static constexpr auto kTarget = "dynemb_lookup";
  static constexpr auto kRun = &backend::lookup;
  static auto bind() { return bind_features(); }

  LookupArgs args;

  void read(BufferReader& reader, TableAttrs const& attrs, IntAttr features) {
    if (!set_counts(reader, args, attrs, features)) return;
    args.given = any_table<int32_t>(attrs.tables, kTableTakesGiven, is_set)
                     ? data<uint64_t>(reader.next_arg(BufferRule::kGiven))
                     : nullptr;
    args.stamps = data<Stamp>(reader.next_ret(BufferRule::kStamps));
    read_tables(reader, attrs, {true, true, true, nullptr, true}, true, args.num_tables,
                args.tables, args.admissions, args.removals, args.departures);
    auto call = features_of(features, args);
    call.uses = args.uses;
    read_lookups(reader, call, true);
    check_index_parts(reader, call);
  }

  static size_t scratch_bytes(CallShape const& shape) {
    return feature_scratch_bytes<LookupArgs, backend::lookup_scratch_bytes>(shape);
  }
};

#ifdef DYNEMB_CUDA
struct LookupOfPeers : PeerLookup<Lookup> {
  static constexpr auto kTarget = "dynemb_peer_lookup";
  static constexpr auto kRun = &PeerLookup::run;
};
#endif

}  // namespace

#ifdef DYNEMB_CUDA
Registration peer_lookup_registration() { return registration_of<LookupOfPeers>(); }
#endif
Registration lookup_registration() { return registration_of<Lookup>(); }

}  // namespace dynemb
