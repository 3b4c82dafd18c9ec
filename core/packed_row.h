// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/packed_row.h: rows for serving: one small code a column, and one scale a row.
//
// A row is its scale, a float32, and then its codes, in whole words of four bytes. So one row is
// one piece of memory, a scale costs no access of its own, and a word never crosses a row's end. A
// column is its code times the scale.
//
// Python makes the codes (jax_dynemb/_src/ops/packed_rows.py), and only find reads them. Any bytes
// may stand in an array: they decide what is read out, never where.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/macros.h"
#include "core/value_type.h"

namespace dynemb {

// kFloat8: float8 e4m3fn, whose NaN is never written and reads as 480. kInt8: -127 to 127. kInt4:
// -7 to 7, each plus 8; an even column lies in the low half of a byte, the next one in the high
// half.
enum class RowCode : int32_t { kFloat8 = 0, kInt8 = 1, kInt4 = 2, kNumCodes };

constexpr int32_t kScaleBytes = 4;  // before the codes
constexpr int32_t kCodeWord = 4;

DYNEMB_HD constexpr int32_t columns_of_byte(RowCode code) { return code == RowCode::kInt4 ? 2 : 1; }

// Returns the bytes from the first code to that of `column`, an even one.
DYNEMB_HD constexpr int32_t code_offset(RowCode code, int32_t column) {
  return column / columns_of_byte(code);
}

DYNEMB_HD constexpr int32_t packed_row_bytes(RowCode code, int32_t dim) {
  auto const per_word = kCodeWord * columns_of_byte(code);
  return kScaleBytes + (dim + per_word - 1) / per_word * kCodeWord;
}

// Exponent and mantissa of e4m3 stand where those of a half do, whose exponent has a bias of 15
// instead of 7: the value is that of these bits times 2^8, subnormal ones included.
constexpr float kFloat8Factor = 256.0f;

DYNEMB_HD uint16_t float8_as_half(uint32_t code) {
  return static_cast<uint16_t>((code & 0x80u) << 8 | (code & 0x7fu) << 7);
}

// Returns the value of a code, without its scale.
template <RowCode kCode>
DYNEMB_HD float code_value(uint32_t code) {
  if constexpr (kCode == RowCode::kFloat8) {
    return to_float(Float16{float8_as_half(code)}) * kFloat8Factor;
  } else if constexpr (kCode == RowCode::kInt8) {
    return static_cast<float>(static_cast<int8_t>(code));
  } else {
    return static_cast<float>(static_cast<int32_t>(code & 15u) - 8);
  }
}

// Calls `function` with the constant of `code`; one that is none of them does nothing.
template <class Function>
inline void with_row_code(RowCode code, Function const& function) {
  switch (code) {
    case RowCode::kFloat8:
      return function(std::integral_constant<RowCode, RowCode::kFloat8>{});
    case RowCode::kInt8:
      return function(std::integral_constant<RowCode, RowCode::kInt8>{});
    case RowCode::kInt4:
      return function(std::integral_constant<RowCode, RowCode::kInt4>{});
    case RowCode::kNumCodes:
      return;
  }
}

}  // namespace dynemb
