// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/any_optimizer.h: one update of some rows by any optimizer.
//
// Compiled once an optimizer and instruction set, for rows of float32: rows of 16 bits pass through
// a buffer in the first cache. So the loops that sum gradients are not compiled again for it.
#pragma once

#include "core/optimizers/list.h"
#include "core/table_ref.h"
#include "cpu/gradients/update_row.h"

namespace dynemb::cpu {

// Returns how many rows it skipped, since their gradients, or the sums that the optimizer needs of
// them, are not finite.
int update_by_any(TableRef const& table, AnyOptimizer const& optimizer, RowUpdates& rows);

}  // namespace dynemb::cpu
