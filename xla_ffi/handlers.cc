// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers.cc: the list of all handlers. They are in xla_ffi/handlers/.
#include "xla_ffi/handlers.h"

#include "xla_ffi/handlers/registrations.h"

namespace dynemb {

std::vector<Registration> registrations() {
  return {
#ifdef DYNEMB_CUDA
      peer_sums_registration(),       peer_lookup_registration(),
      peer_find_registration(),       send_bags_registration(),
#endif
      lookup_registration(),          find_registration(),
      find_packed_registration(),     update_registration(),
      update_any_registration(),      reduce_registration(),
      sum_rows_registration(),        gather_registration(),
      scatter_registration(),         erase_registration(),
      count_rule_registration(),      erase_rule_registration(),
      decay_registration(),           export_batch_registration(),
      route_registration(),           ordered_route_registration(),
      offsets_registration(),         offsets_of_features_registration(),
      add_to_counters_registration(), distinct_registration(),
      pair_rows_registration(),       pair_gradients_registration(),
      promote_registration(),         fetch_registration(),
      write_back_registration(),      swap_rows_registration(),
      settle_registration(),          tier_rows_registration(),
      tier_gather_registration(),     depart_registration()};
}

size_t scratch_bytes(std::string const& operation, CallShape const& shape) {
  for (auto const& each : registrations()) {
    if (operation == operation_of(each.name)) return each.scratch_bytes(shape);
  }
  return 0;
}

}  // namespace dynemb
