// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/any_optimizer.cc: the loops over the columns of a row for the structs of
// core/optimizers/.
#include "cpu/gradients/any_optimizer.h"

#include <type_traits>
#include <vector>

#include "core/finite.h"
#include "core/group.h"
#include "core/row.h"
#include "cpu/gradients/rounding_bits.h"
#include "cpu/loops/isa.h"

namespace dynemb::cpu {
namespace {

// The columns of a row. A wide state that the optimizer does not have is the row itself, so that
// every loop may read it.
struct RowColumns {
  int32_t dim;
  float* w;
  float const* g;
  float* wide[2];
};

// Like sum_of_squares: 16 sums whose order counts from the row's own start.
template <int k, class Functor>
RowSums2 sum_columns(Functor const& functor, RowFactors const& factors, RowColumns const& row) {
  constexpr int kSums = 16;
  RowSums2 sums[kSums] = {};
  auto const add = [&](int32_t i, RowSums2& sum) {
    float const wide[2] = {row.wide[0][i], row.wide[1][i]};
    functor.template add<k>(factors, row.w[i], row.g[i], wide, sum);
  };
  int32_t i = 0;
  for (; i + kSums <= row.dim; i += kSums) {
    DYNEMB_INDEPENDENT
    for (int j = 0; j < kSums; ++j) add(i + j, sums[j]);
  }
  for (int j = 0; i < row.dim; ++i, ++j) add(i, sums[j]);
  for (int half = kSums / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) {
      sums[j].a += sums[j + half].a;
      sums[j].b += sums[j + half].b;
    }
  }
  return sums[0];
}

template <class Functor>
void update_columns(Functor const& functor, RowFactors const& factors, RowColumns const& row) {
  DYNEMB_INDEPENDENT
  for (int32_t i = 0; i < row.dim; ++i) {
    float wide[2] = {};
    for (int s = 0; s < Functor::kWide; ++s) wide[s] = row.wide[s][i];
    row.w[i] = functor.update(factors, row.w[i], row.g[i], wide);
    for (int s = 0; s < Functor::kWide; ++s) row.wide[s][i] = wide[s];
  }
}

// FTRL's usual power is a root. As a constant it leaves no call in the loop, so that vectors do it.
inline void update_columns(Ftrl const& functor, RowFactors const& factors, RowColumns const& row) {
  if (functor.power != 0.5f) return update_columns<Ftrl>(functor, factors, row);
  auto by_roots = functor;
  by_roots.power = 0.5f;
  update_columns<Ftrl>(by_roots, factors, row);
}

// Optimizers whose loops GCC 12 does not vectorise where it sees how their factors are computed: a
// branch of that computation ends up in the loop.
template <class Functor>
constexpr bool kHidesFactors =
    std::is_same_v<Functor, SmartAdam> || std::is_same_v<Functor, SmartMomentum>;

bool are_finite(RowSums2 const& sums) { return is_finite(sums.a) && is_finite(sums.b); }

// Whether the row was updated: if not, nothing of it has changed.
template <class Functor>
bool update_one(Functor const& functor, RowColumns const& row, RowNumbers& numbers, bool skips) {
  RowFactors factors{};
  functor.begin(numbers, factors);
  if constexpr (kHidesFactors<Functor>) __asm__("" : "+m"(factors));
  auto const dim = static_cast<float>(row.dim);
  auto const stages = functor.stages();
  if (stages > 0) {
    auto const sums = sum_columns<0>(functor, factors, row);
    if (skips && !are_finite(sums)) return false;
    functor.template finish<0>(sums, dim, numbers, factors);
  }
  if (stages > 1) {
    auto const sums = sum_columns<1>(functor, factors, row);
    if (skips && !are_finite(sums)) return false;
    functor.template finish<1>(sums, dim, numbers, factors);
  }
  update_columns(functor, factors, row);
  return true;
}

// The summed gradient as the table clips it: in `buffer`, or where it lies.
float const* clip_gradient(AnyOptimizer const& optimizer, float const* g, int32_t dim,
                           float* buffer) {
  auto const by_value = optimizer.clip_value > 0.0f, by_norm = optimizer.clip_norm > 0.0f;
  if (!by_value && !by_norm) return g;
  for (int32_t i = 0; i < dim; ++i) buffer[i] = clipped(g[i], optimizer.clip_value);
  if (by_norm) {
    auto const factor = norm_factor(sum_of_squares(buffer, dim), optimizer.clip_norm);
    for (int32_t i = 0; i < dim; ++i) buffer[i] *= factor;
  }
  return buffer;
}

// Not a part of the loops of each optimizer, which would become larger by a third.
template <class V>
__attribute__((noinline)) void round_row(float const* floats, uint16_t const* random, int32_t dim,
                                         V* row) {
  with_isa([&](auto) {
    DYNEMB_INDEPENDENT
    for (int32_t i = 0; i < dim; ++i) round_stochastically(floats[i], random[i], row + i);
  });
}

// A row as float32, for the time of an update.
class FloatRow {
 public:
  FloatRow(TableRef const& table, int64_t slot, float* buffer) : table_(table), slot_(slot) {
    if (table.value_type == ValueType::kFloat32) {
      floats_ = row_at<float>(table, slot);
      return;
    }
    floats_ = buffer;
    with_half([&](auto const* row) {
      for (int32_t i = 0; i < table_.dim; ++i) floats_[i] = to_float(row[i]);
    });
  }

  float* data() const { return floats_; }

  // `random`: 16 bits for each column, or null: to nearest.
  void store(uint16_t const* random) const {
    if (table_.value_type == ValueType::kFloat32) return;
    with_half([&](auto* row) {
      if (random != nullptr) return round_row(floats_, random, table_.dim, row);
      for (int32_t i = 0; i < table_.dim; ++i) from_float(floats_[i], row + i);
    });
  }

 private:
  template <class Function>
  void with_half(Function const& function) const {
    if (table_.value_type == ValueType::kBFloat16) return function(row_at<BFloat16>(table_, slot_));
    function(row_at<Float16>(table_, slot_));
  }

  TableRef const& table_;
  int64_t slot_;
  float* floats_;
};

constexpr int kMostWide = 2;

// Random bits for a row and for each of its wide states; null: it is rounded to nearest.
struct RowBits {
  uint16_t const* of_row;
  uint16_t const* of_state[kMostWide];
};

// The columns of a state: where they lie, or in `buffer` if they have 16 bits.
float* load_wide(TableRef const& table, int s, int64_t slot, float* buffer) {
  if (!is_half_state(table, s)) return state_at(table, s, slot);
  auto const* const from = half_state_at(table, s, slot);
  for (int32_t i = 0; i < table.dim; ++i) buffer[i] = to_float(from[i]);
  return buffer;
}

void store_wide(TableRef const& table, int s, int64_t slot, float const* columns,
                uint16_t const* random) {
  if (!is_half_state(table, s)) return;
  auto* const to = half_state_at(table, s, slot);
  if (random != nullptr) return round_row(columns, random, table.dim, to);
  for (int32_t i = 0; i < table.dim; ++i) from_float(columns[i], to + i);
}

template <class Functor>
bool update_slot(TableRef const& table, AnyOptimizer const& optimizer, Functor const& functor,
                 int64_t slot, float const* gradient, RowBits const& random,
                 std::vector<float>& buffers) {
  auto const dim = table.dim;
  auto const skips = table.skips_nonfinite != 0;
  if (skips && !all_finite(gradient, dim)) return false;
  if (has_unwritten_states(table, slot)) initialize_states(ScalarGroup{}, table, slot);
  FloatRow const values(table, slot, buffers.data());
  RowColumns row{dim, values.data(), nullptr, {values.data(), values.data()}};
  row.g = clip_gradient(optimizer, gradient, dim, buffers.data() + dim);
  for (int s = 0; s < Functor::kWide; ++s) {
    row.wide[s] = load_wide(table, s, slot, buffers.data() + (2 + s) * dim);
  }
  RowNumbers numbers{};
  for (int s = 0; s < Functor::kNumbers; ++s) {
    numbers.of[s] = *state_at(table, Functor::kWide + s, slot);
  }
  constexpr auto kFirstInt = Functor::kWide + Functor::kNumbers;
  for (int s = 0; s < Functor::kInts; ++s) {
    numbers.ints[s] = float_bits(*state_at(table, kFirstInt + s, slot));
  }
  if (!update_one(functor, row, numbers, skips)) return false;
  values.store(random.of_row);
  for (int s = 0; s < Functor::kWide; ++s) {
    store_wide(table, s, slot, row.wide[s], random.of_state[s]);
  }
  for (int s = 0; s < Functor::kNumbers; ++s) {
    *state_at(table, Functor::kWide + s, slot) = numbers.of[s];
  }
  for (int s = 0; s < Functor::kInts; ++s) {
    *state_at(table, kFirstInt + s, slot) = float_from_bits(numbers.ints[s]);
  }
  return true;
}

// Draws the bits of all arrays of 16 bits; returns which these are, in order of
// RoundingSeed::array.
struct Draws {
  bool of[1 + kMostWide];
};

Draws draw_bits(TableRef const& table, RowUpdates const& rows) {
  Draws draws{};
  if (table.rounds_stochastically == 0) return draws;
  for (int array = 0; array <= kMostWide; ++array) {
    draws.of[array] =
        array == 0 ? table.value_type != ValueType::kFloat32 : is_half_state(table, array - 1);
    if (!draws.of[array]) continue;
    with_isa([&](auto) { RoundingBits::of_this_thread(array).draw(table, rows, array); });
  }
  return draws;
}

RowBits bits_of_row(Draws const& draws, int i) {
  auto const bits_of = [&](int array) -> uint16_t const* {
    return draws.of[array] ? RoundingBits::of_this_thread(array).of_row(i) : nullptr;
  };
  return {bits_of(0), {bits_of(1), bits_of(2)}};
}

}  // namespace

int update_by_any(TableRef const& table, AnyOptimizer const& optimizer, RowUpdates const& rows) {
  thread_local std::vector<float> buffers;
  buffers.resize(size_t(table.dim) * (2 + kMostWide));
  auto const draws = draw_bits(table, rows);
  int skipped = 0;
  with_optimizer(optimizer.kind, [&](auto type) {
    using Functor = typename decltype(type)::Type;
    auto const functor = optimizer.as<Functor>();
    with_isa([&](auto) {
      for (int i = 0; i < rows.count; ++i) {
        auto const slot = rows.slots[i];
        skipped += !update_slot(table, optimizer, functor, slot, rows.gradients[i],
                                bits_of_row(draws, i), buffers);
      }
    });
  });
  return skipped;
}

}  // namespace dynemb::cpu
