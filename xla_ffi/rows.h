// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/rows.h: the arrays that rows, or gradients, lie in: one of their own or a shared one.
#pragma once

#include <cstdint>
#include <vector>

#include "core/feature_ref.h"
#include "xla_ffi/buffers.h"
#include "xla_ffi/schema.h"

namespace dynemb {

// Holds the arrays that rows lie in: one of their own, or one that several features share.
class RowArrays {
 public:
  explicit RowArrays(BufferReader& reader) : reader_(reader) {}

  ffi::AnyBuffer operand(int64_t const* fields);  // gradients
  ffi::AnyBuffer result(int64_t const* fields);   // rows

 private:
  template <class Next>
  ffi::AnyBuffer shared(int64_t number, Next const& next);

  BufferReader& reader_;
  std::vector<ffi::AnyBuffer> shared_;
};

// Rows, or gradients, in an array of their own or a shared one.
struct RowsView {
  void* data;
  ValueType type;
  RowPlaces places;
};

RowsView view_rows(BufferReader& reader, ffi::AnyBuffer const& array, int64_t const* fields,
                   int64_t num_rows, int32_t dim);

}  // namespace dynemb
