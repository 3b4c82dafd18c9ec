// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/finite.h: which summed gradients an update may use.
//
// A NaN or an infinity in one gradient would stay in its row, and in its optimizer states, for
// good. So the update of such a row is skipped and counted (kNonfinite), unless the table is set
// not to skip it. Optimizers with one rate for a row look at the sum of its squares, which they
// compute anyway: it is not finite either if a column is not, or if the squares overflow.
#pragma once

#include <cstdint>

#include "core/macros.h"
#include "core/value_type.h"

namespace dynemb {

DYNEMB_HD bool is_finite(float value) { return (float_bits(value) & 0x7fffffffu) < 0x7f800000u; }

}  // namespace dynemb
