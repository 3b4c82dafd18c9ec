// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/any_optimizer.cc: the update of a row by the structs of core/optimizers/. What is
// rare, or the same for all of them, stays out of the loops that are compiled for each.
#include "cpu/gradients/any_optimizer.h"

#include <vector>

#include "core/group.h"
#include "core/row.h"
#include "cpu/gradients/array_columns.h"
#include "cpu/gradients/column_loops.h"
#include "cpu/gradients/rounding_bits.h"
#include "cpu/loops/isa.h"

namespace dynemb::cpu {
namespace {

constexpr int kMostWide = 2;
constexpr int kMostArrays = 1 + kMostWide;  // the rows, and wide states

// Room for one row: its arrays as float32, and its clipped gradient.
struct Buffers {
  explicit Buffers(int32_t columns) : dim(columns) {
    thread_local std::vector<float> kept;  // only grows
    if (kept.size() < size_t(dim) * (kMostArrays + 1)) kept.resize(size_t(dim) * (kMostArrays + 1));
    floats = kept.data();
  }

  float* array(int number) const { return floats + int64_t{number} * dim; }
  float* gradient() const { return array(kMostArrays); }

  int32_t dim;
  float* floats;
};

// The summed gradient as the table clips it: in `buffer`.
__attribute__((noinline)) float const* clip_gradient(AnyOptimizer const& optimizer, float const* g,
                                                     int32_t dim, float* buffer) {
  with_isa([&](auto) {
    for (int32_t i = 0; i < dim; ++i) buffer[i] = clipped(g[i], optimizer.clip_value);
    if (!(optimizer.clip_norm > 0.0f)) return;
    auto const factor = norm_factor(sum_of_squares(buffer, dim), optimizer.clip_norm);
    for (int32_t i = 0; i < dim; ++i) buffer[i] *= factor;
  });
  return buffer;
}

__attribute__((noinline)) void write_first_states(TableRef const& table, int64_t slot) {
  initialize_states(ScalarGroup{}, table, slot);
}

// Random bits for a row and for each of its wide states; null: it is rounded to nearest.
struct RowBits {
  uint16_t const* of[kMostArrays];
};

template <class Functor>
bool update_slot(TableRef const& table, AnyOptimizer const& optimizer, Functor const& functor,
                 int64_t slot, float const* gradient, RowBits const& random,
                 Buffers const& buffers) {
  if (has_unwritten_states(table, slot)) write_first_states(table, slot);
  RowColumns row{};
  row.dim = table.dim;
  row.w = ArrayColumns(table, 0, slot).load(buffers.array(0));
  row.wide[0] = row.wide[1] = row.w;
  for (int s = 0; s < Functor::kWide; ++s) {
    row.wide[s] = ArrayColumns(table, 1 + s, slot).load(buffers.array(1 + s));
  }
  auto const clips = optimizer.clip_value > 0.0f || optimizer.clip_norm > 0.0f;
  row.g = clips ? clip_gradient(optimizer, gradient, table.dim, buffers.gradient()) : gradient;
  RowNumbers numbers{};
  for (int s = 0; s < Functor::kNumbers; ++s) {
    numbers.of[s] = *state_at(table, Functor::kWide + s, slot);
  }
  constexpr auto kFirstInt = Functor::kWide + Functor::kNumbers;
  for (int s = 0; s < Functor::kInts; ++s) {
    numbers.ints[s] = float_bits(*state_at(table, kFirstInt + s, slot));
  }
  if (!update_columns_and_numbers(functor, row, numbers, table.skips_nonfinite != 0)) return false;
  ArrayColumns(table, 0, slot).store(row.w, random.of[0]);
  for (int s = 0; s < Functor::kWide; ++s) {
    ArrayColumns(table, 1 + s, slot).store(row.wide[s], random.of[1 + s]);
  }
  for (int s = 0; s < Functor::kNumbers; ++s) {
    *state_at(table, Functor::kWide + s, slot) = numbers.of[s];
  }
  for (int s = 0; s < Functor::kInts; ++s) {
    *state_at(table, kFirstInt + s, slot) = float_from_bits(numbers.ints[s]);
  }
  return true;
}

// Holds the random bits of some rows: of the arrays of 16 bits, where the table rounds so.
class DrawnBits {
 public:
  DrawnBits(TableRef const& table, RowUpdates const& rows) {
    if (table.rounds_stochastically == 0) return;
    for (int array = 0; array < kMostArrays; ++array) {
      if (type_of_array(table, array) == ValueType::kFloat32) continue;
      auto& bits = RoundingBits::of_this_thread(array);
      with_isa([&](auto isa) { bits.draw<decltype(isa)::value>(table, rows, array); });
      of_[array] = &bits;
    }
  }

  RowBits of_row(int i) const {
    RowBits result{};
    for (int array = 0; array < kMostArrays; ++array) {
      if (of_[array] != nullptr) result.of[array] = of_[array]->of_row(i);
    }
    return result;
  }

 private:
  RoundingBits const* of_[kMostArrays] = {};
};

int drop_nonfinite(TableRef const& table, RowUpdates& rows) {
  int dropped = 0;
  with_isa([&](auto) {
    if (!surely_finite(rows, table.dim)) dropped = rows.drop_nonfinite(false, table.dim);
  });
  return dropped;
}

}  // namespace

int update_by_any(TableRef const& table, AnyOptimizer const& optimizer, RowUpdates& rows) {
  int skipped = table.skips_nonfinite != 0 ? drop_nonfinite(table, rows) : 0;
  Buffers const buffers(table.dim);
  DrawnBits const bits(table, rows);
  with_optimizer(optimizer.kind, [&](auto type) {
    using Functor = typename decltype(type)::Type;
    auto const functor = optimizer.as<Functor>();
    with_isa([&](auto) {
      for (int i = 0; i < rows.count; ++i) {
        skipped += !update_slot(table, optimizer, functor, rows.slots[i], rows.gradients[i],
                                bits.of_row(i), buffers);
      }
    });
  });
  return skipped;
}

}  // namespace dynemb::cpu
