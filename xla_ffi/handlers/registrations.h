// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/registrations.h: every handler, each defined in the file of its operation.
#pragma once

#include "xla_ffi/handlers.h"

namespace dynemb {

Registration lookup_registration();
Registration find_registration();
Registration find_packed_registration();
Registration update_registration();
Registration update_any_registration();
Registration reduce_registration();
Registration sum_rows_registration();
#ifdef DYNEMB_CUDA
Registration peer_sums_registration();
Registration peer_lookup_registration();
Registration peer_find_registration();
Registration send_bags_registration();
#endif
Registration gather_registration();
Registration scatter_registration();
Registration erase_registration();
Registration count_rule_registration();
Registration erase_rule_registration();
Registration decay_registration();
Registration export_batch_registration();
Registration route_registration();
Registration ordered_route_registration();
Registration offsets_registration();
Registration offsets_of_features_registration();
Registration add_to_counters_registration();
Registration distinct_registration();
Registration pair_rows_registration();
Registration pair_gradients_registration();
Registration promote_registration();
Registration fetch_registration();
Registration write_back_registration();
Registration swap_rows_registration();
Registration settle_registration();
Registration tier_rows_registration();
Registration tier_gather_registration();
Registration depart_registration();

}  // namespace dynemb
