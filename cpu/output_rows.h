// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/output_rows.h: from slots to the rows that a lookup returns, pooled or one per id.
#pragma once

#include "core/args.h"
#include "cpu/feature_chunks.h"

namespace dynemb::cpu {

// Writes rows, and scales of mean bags, of the chunk's bags from the feature's final slots. An id
// without a row reads what `missing` gives for its key.
void write_rows(TableRef const& table, FeatureRef const& feature, Initializer const& missing,
                FeatureChunk const& bags);

}  // namespace dynemb::cpu
