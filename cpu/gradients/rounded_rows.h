// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/rounded_rows.h: the step of row-wise Adagrad on rows that are rounded
// stochastically. Their rates come from the tuned loop: it finds those of some rows together, and
// so waits less for roots and quotients than the loop for all optimizers.
#pragma once

#include "core/table_ref.h"

namespace dynemb::cpu {

struct RowUpdates;

// Subtracts from each row its gradient times its rate. Precondition: rows have 16 bits.
void subtract_rounded(TableRef const& table, RowUpdates const& rows, float const* rates);

}  // namespace dynemb::cpu
