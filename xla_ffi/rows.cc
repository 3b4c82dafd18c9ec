// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/rows.cc: the arrays that rows, or gradients, lie in: one of their own or a shared one.
#include "xla_ffi/rows.h"

#include <algorithm>
#include <limits>

namespace dynemb {
namespace {

// Do so many rows lie in an array of so many elements, none on another one?
bool lie_within(RowPlaces const& places, int64_t offset, int64_t num_rows, int32_t dim,
                int64_t elements) {
  if (num_rows == 0) return true;
  if (places.group == 0) return offset <= elements - num_rows * dim;
  auto const last_group = (num_rows - 1) / places.group;
  auto const in_last = num_rows - last_group * places.group;
  if (last_group > 0 && places.stride < int64_t{places.group} * dim) return false;
  auto const room = elements - offset - in_last * dim;
  return room >= 0 && (last_group == 0 || places.stride <= room / last_group);
}

}  // namespace

template <class Next>
ffi::AnyBuffer RowArrays::shared(int64_t number, Next const& next) {
  if (number < 0) return next();
  auto const place = static_cast<size_t>(number);
  reader_.expect(place <= shared_.size(), "shared arrays must be numbered in order of use");
  if (place >= shared_.size()) {
    reader_.sizes().forget(kElements);
    shared_.push_back(next());
  }
  return shared_[std::min(place, shared_.size() - 1)];
}

ffi::AnyBuffer RowArrays::operand(int64_t const* fields) {
  auto const rule = fields[kRowsArray] < 0 ? BufferRule::kGradients : BufferRule::kSharedGradients;
  return shared(fields[kRowsArray], [&] { return reader_.next_arg(rule); });
}

ffi::AnyBuffer RowArrays::result(int64_t const* fields) {
  auto const rule = fields[kRowsArray] < 0 ? BufferRule::kRows : BufferRule::kSharedRows;
  return shared(fields[kRowsArray], [&] {
    return fields[kRowsPassedOn] != 0 ? reader_.next_aliased(rule) : reader_.next_ret(rule);
  });
}

RowsView view_rows(BufferReader& reader, ffi::AnyBuffer const& array, int64_t const* fields,
                   int64_t num_rows, int32_t dim) {
  auto const type = value_type_of(array);
  auto* const data = static_cast<char*>(array.untyped_data());
  if (fields[kRowsArray] < 0) return {data, type, {}};
  auto const bytes = type == ValueType::kFloat32 ? 4 : 2;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (!reader.expect(fields[kRowsGroup] <= kMost, "a group has too many rows")) {
    return {data, type, {}};
  }
  RowPlaces const places{static_cast<int32_t>(fields[kRowsGroup]), 0, {fields[kRowsStride]}};
  auto const elements = static_cast<int64_t>(array.element_count());
  reader.expect(places.stride * bytes % 16 == 0, "a stride must be a multiple of 16 bytes");
  if (!reader.expect(lie_within(places, fields[kRowsOffset], num_rows, dim, elements),
                     "rows lie outside of their array, or on each other")) {
    return {data, type, places};
  }
  return {data + fields[kRowsOffset] * bytes, type, places};
}

}  // namespace dynemb
