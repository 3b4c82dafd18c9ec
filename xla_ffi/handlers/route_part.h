// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/route_part.h: the attribute that describes the owners of ids.
#pragma once

#include <algorithm>
#include <optional>

#include "core/args.h"
#include "core/route.h"
#include "xla_ffi/schema.h"

namespace dynemb {

// Empty if some bucket has no owner.
inline std::optional<RoutePart> route_part(int64_t const* fields) {
  auto const owners = fields[kPartOwners], of_each = fields[kPartOfEach];
  auto const buckets = fields[kPartBuckets] > 0 ? fields[kPartBuckets] : owners * of_each;
  if ((buckets + of_each - 1) / of_each > owners || buckets >= int64_t{1} << 32) return {};
  return RoutePart{fields[kPartSize], static_cast<int32_t>(fields[kPartFirst]),
                   owners_of(static_cast<uint32_t>(buckets), static_cast<uint32_t>(of_each)),
                   factors_of_seed(static_cast<uint64_t>(fields[kPartHashSeed]))};
}

}  // namespace dynemb
