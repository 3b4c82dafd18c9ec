// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/mutations.h"

#include <algorithm>

namespace dynemb::fuzz {
namespace {

constexpr int64_t kMostBytes = 1 << 22;

// Tables of the world stay as they are, and what is updated in place still is.
void copy_arrays(Call& call) {
  for (auto& operand : call.operands) {
    auto const old = operand.memory;
    operand = operand.copy();
    for (auto& result : call.results) {
      if (result.memory == old) result = operand;
    }
  }
}

// An operand or a result; where it is both, the other one changes too, most often.
void replace(Call& call, Random& random, Array& array, Array const& by) {
  auto const old = array.memory;
  auto const both = !random.one_in(4);
  array = by;
  for (auto* const list : {&call.operands, &call.results}) {
    for (auto& other : *list) {
      if (both && other.memory == old) other = by;
    }
  }
}

std::vector<int64_t> other_shape(std::vector<int64_t> shape, Random& random) {
  if (shape.empty() || random.one_in(4)) {
    if (!shape.empty() && random.one_in(2)) {
      shape.pop_back();
    } else {
      shape.push_back(random.below(4));
    }
    return shape;
  }
  auto& dim = shape[static_cast<size_t>(random.below(static_cast<int64_t>(shape.size())))];
  dim = std::max<int64_t>(
      0, random.of<int64_t>({dim - 1, dim + 1, dim * 2, dim / 2, 0, 1, random.below(300)}));
  return shape;
}

bool is_small(std::vector<int64_t> const& shape) {
  int64_t count = 1;
  for (auto const dim : shape) count *= std::min<int64_t>(dim, kMostBytes);
  return count <= kMostBytes;
}

void change_array(Call& call, Random& random, std::vector<Array>& list) {
  if (list.empty()) return;
  auto& array = list[static_cast<size_t>(random.below(static_cast<int64_t>(list.size())))];
  auto shape = array.dims;
  auto dtype = array.dtype;
  if (random.one_in(3)) {
    dtype = random.of({XLA_FFI_DataType_PRED, XLA_FFI_DataType_U8, XLA_FFI_DataType_S16,
                       XLA_FFI_DataType_S32, XLA_FFI_DataType_U32, XLA_FFI_DataType_S64,
                       XLA_FFI_DataType_U64, XLA_FFI_DataType_F16, XLA_FFI_DataType_F32,
                       XLA_FFI_DataType_F64, XLA_FFI_DataType_BF16});
  } else {
    shape = other_shape(shape, random);
  }
  if (is_small(shape)) replace(call, random, array, array.as(dtype, shape));
}

void change_list(Random& random, std::vector<Array>& list) {
  if (list.empty()) return;
  auto const place = random.below(static_cast<int64_t>(list.size()));
  auto const other = static_cast<size_t>(random.below(static_cast<int64_t>(list.size())));
  switch (random.below(4)) {
    case 0:
      list.erase(list.begin() + place);
      break;
    case 1:
      list.insert(list.begin() + place, list[other].copy());
      break;
    case 2:
      std::swap(list[static_cast<size_t>(place)], list[other]);
      break;
    default:
      list[static_cast<size_t>(place)] = list[static_cast<size_t>(place)].copy();  // not in place
  }
}

void change_attribute(Call& call, Random& random) {
  auto const place = random.below(static_cast<int64_t>(call.attributes.size()));
  auto& attribute = call.attributes[static_cast<size_t>(place)];
  auto& numbers = attribute.integers;
  if (attribute.is_float) {
    attribute.floats.resize(static_cast<size_t>(random.below(40)));
  } else if (attribute.is_list && (numbers.empty() || random.one_in(4))) {
    numbers.resize(static_cast<size_t>(random.below(60)), random.below(3));
  } else {
    auto& number = numbers[static_cast<size_t>(random.below(static_cast<int64_t>(numbers.size())))];
    auto const bits = static_cast<uint64_t>(number);  // of these a sum may wrap around
    auto const near = random.of<uint64_t>({bits - 1, bits + 1, bits * 2});
    number = random.one_in(4) ? random.hostile() : static_cast<int64_t>(near);
  }
}

}  // namespace

void mutate(Call& call, Random& random) {
  copy_arrays(call);
  call.check = nullptr;
  for (auto count = random.between(1, 2); count > 0; --count) {
    switch (random.below(6)) {
      case 0:
      case 1:
        change_array(call, random, call.operands);
        break;
      case 2:
        change_array(call, random, call.results);
        break;
      case 3:
        change_list(random, random.one_in(2) ? call.operands : call.results);
        break;
      default:
        change_attribute(call, random);
    }
  }
}

}  // namespace dynemb::fuzz
