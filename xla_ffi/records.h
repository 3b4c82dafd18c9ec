// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/records.h: what every attribute that is a list of records must be, in one table each.
#pragma once

#include <cstdint>
#include <string>

#include "xla/ffi/api/ffi.h"

namespace dynemb {

namespace ffi = xla::ffi;

// Attributes that are lists of records, all of integers. Empty if each number is in its range.
enum class RecordRule : int32_t { kTables = 0, kFeatures, kSums, kParts, kPacked };

std::string check_records(RecordRule rule, ffi::Span<int64_t const> numbers);

}  // namespace dynemb
