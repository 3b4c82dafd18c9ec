// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/route.cc: the distinct ids of a batch, numbered.
#include "core/route.h"

#include <vector>

#include "core/args.h"
#include "xla_ffi/features.h"
#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/registrations.h"
#include "xla_ffi/handlers/route_part.h"
#include "xla_ffi/limits.h"

namespace dynemb {
namespace {

struct Route {
  static constexpr auto kTarget = "dynemb_route";
  static constexpr auto kRun = &backend::route;
  static auto bind() { return dynemb::bind().Attr<IntAttr>("parts"); }

  RouteArgs args{};
  std::vector<RoutePart> parts;  // of args

  void read(BufferReader& reader, IntAttr attr) {
    if (!reader.records(RecordRule::kParts, attr)) return;
    FeatureRef ids{};
    set_ids(reader, BufferRule::kPairs, ids);
    auto const unique_of = reader.next_ret(BufferRule::kUniqueOf);
    auto const first = reader.next_ret(BufferRule::kFirst);
    auto const starts = reader.next_ret(BufferRule::kStarts);
    args.num_ids = ids.num_ids;
    args.ids = static_cast<Key const*>(ids.ids);
    args.num_parts = count_rows(attr, kNumPartFields);
    args.num_segments = static_cast<int32_t>(starts.element_count()) - 1;
    args.unique_of = data<int32_t>(unique_of);
    args.first = data<int32_t>(first);
    args.starts = data<int32_t>(starts);
    read_parts(reader, attr);
    args.parts = parts.data();
    reader.expect(args.num_ids <= kMostIds, "a device has at most 2^30 - 1 ids in a call");
  }

  // Parts without ids own nothing, but are there.
  void read_parts(BufferReader& reader, IntAttr attr) {
    int64_t total = 0, segment = 0;
    auto in_order = true, owned = true;
    for (int32_t p = 0; p < args.num_parts; ++p) {
      auto const* const fields = attr.begin() + p * kNumPartFields;
      auto const first = fields[kPartFirst], owners = fields[kPartOwners];
      in_order &= first >= segment;
      segment = first + owners;
      in_order &= segment <= args.num_segments;
      total += fields[kPartSize];
      auto const part = route_part(fields);
      owned = part.has_value();
      if (!owned) break;
      parts.push_back(*part);
    }
    reader.expect(owned, "each bucket of a part must have an owner");
    reader.expect(in_order, "the parts' segments must follow each other");
    reader.expect(total == args.num_ids, "the parts must have as many ids as there are");
  }

  static size_t scratch_bytes(CallShape const& shape) {
    Route route;
    for (auto const size : shape.ids) {
      route.parts.push_back({size, 0, {1, 1}, plain_factors()});
      route.args.num_ids += size;
    }
    route.args.parts = route.parts.data();
    route.args.num_parts = static_cast<int32_t>(route.parts.size());
    return backend::route_scratch_bytes(route.args);
  }
};

// A call of its own, because programs that were exported before know the other one.
struct OrderedRoute : Route {
  static constexpr auto kTarget = "dynemb_ordered_route";

  void read(BufferReader& reader, IntAttr attr) {
    Route::read(reader, attr);
    args.order = data<int32_t>(reader.next_ret(BufferRule::kPositions));
  }
};

}  // namespace

Registration route_registration() { return registration_of<Route>(); }
Registration ordered_route_registration() { return registration_of<OrderedRoute>(); }

}  // namespace dynemb
