// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/probe_ahead.h: the index lines of the next ids are fetched while the present one is probed.
#pragma once

#include "core/feature_ref.h"
#include "core/table_ref.h"

namespace dynemb::cpu {

constexpr int64_t kProbeDistance = 12;  // ids

inline void prefetch_probe(TableRef const& table, FeatureRef const& feature, int64_t position) {
  if (position >= feature.num_ids) return;
  auto const key = load_key(feature.ids, feature.id_type, position);
  auto const* const digests = bucket_at(table, local_bucket_of(table, hash_key(key))).digests;
  __builtin_prefetch(digests);
  __builtin_prefetch(digests + 64);
}

}  // namespace dynemb::cpu
