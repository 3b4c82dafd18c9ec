// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/update_rows.cuh: the Sink of an update (cuda/gradients/sink.cuh): a row and its
// states take one optimizer step where the sum of their gradients is complete.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/finite.h"
#include "core/optimizer.h"
#include "core/row.h"
#include "cuda/gradients/sink.cuh"
#include "cuda/grid/rounding.cuh"
#include "cuda/grid/row_format.cuh"

namespace dynemb::cuda {

template <class Row>
__device__ __forceinline__ AnyFormat state_format(AnyFormat, Row const& row, int state) {
  return {ValueType::kFloat32, moves_vectors(row.table.states[state], row.table.dim)};
}
template <class Row>
__device__ __forceinline__ Floats state_format(Floats, Row const& row, int state) {
  return {moves_vectors(row.table.states[state], row.table.dim)};
}
template <ValueType kType, class Row>
__device__ __forceinline__ FloatVectors state_format(Vectors<kType>, Row const&, int) {
  return {};
}

// kKind: the optimizer of all tables of the call, or kAnyKind: each table's own. Knowing it saves
// registers, and so lets more warps wait for memory at the same time.
constexpr int kAnyKind = -1;

// These are, of SGD, Adagrad, row-wise Adagrad and Adam, the gradients of a tile in flight, and the
// warps of a multiprocessor. Both need registers: more of one means less of the other.
constexpr int kAheadOf[] = {3, 2, 4, 2};
constexpr int kWarpsOf[] = {36, 32, 32, 32};

// What rounding needs of a row beside it: random bits follow from the key (core/stochastic.h).
struct NoKey {};
struct RowKey {
  Key key;
};

// kRounds: rows of 16 bits are rounded stochastically; of kAnyKind those of tables that say so.
template <int kKind, bool kRounds = false>
struct UpdateRows {
  static constexpr int kAhead = kKind == kAnyKind ? 2 : kAheadOf[kKind];
  static constexpr int kWarps = kKind == kAnyKind ? 16 : kWarpsOf[kKind];
  static constexpr auto kCommon = static_cast<OptimizerKind>(kKind);  // none if kAnyKind
  static constexpr int kStates = kKind == kAnyKind ? 2 : num_states(kCommon);
  static constexpr bool kRowwise = is_rowwise(kCommon);

  using Row = SummedRow<kStates>;

  static constexpr bool kChecksRows = !kRowwise;
  static constexpr bool kSumsWholeRows = kKind != kAnyKind;
  static constexpr bool kUpdatesRows = false;
  static constexpr bool kTakesOrders = false;

  Optimizer const* optimizers;
  bool checks_long_rows;      // some table skips rows that are not finite,
  uint64_t const* is_large;   // and this is not 0, or null: their sums are looked at
  RoundingSeed const* seeds;  // of the tables; read if kRounds

  __device__ __forceinline__ OptimizerKind kind_of(int32_t table_index) const {
    if constexpr (kKind != kAnyKind) {
      return kCommon;
    } else {
      return optimizers[table_index].kind;
    }
  }

  struct Loaded : std::conditional_t<kRounds, RowKey, NoKey> {
    RawQuad row;
    RawQuad state[2];  // of a row that is not new
    float row_state;
  };

  static __device__ __forceinline__ int wide_states(OptimizerKind kind) {
    return kind == OptimizerKind::kAdam ? 2 : kind == OptimizerKind::kAdagrad ? 1 : 0;
  }

  // Without a branch, and with zeros for what is not wanted: were it left as it is, the compiler
  // would take what the position before has loaded, and wait for it.
  template <class Format>
  __device__ __forceinline__ Loaded load(Format format, Row const& row, int32_t column,
                                         bool wanted) const {
    Loaded loaded;
    // Undefined costs more registers than zeros where there are states.
    constexpr auto kElse = kStates == 0 ? Masked::kUndefined : Masked::kZeros;
    loaded.row = load_quad_if<kElse>(wanted, format, row.values, column, row.dim);
    auto const kind = kind_of(row.table_index);
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      auto const* const from = reinterpret_cast<char const*>(row.states.at(s));
      auto const has_state = wanted && !row.is_new && s < wide_states(kind);
      loaded.state[s] =
          load_quad_if(has_state, state_format(format, row, s), from, column, row.dim);
    }
    // By all lanes: a broadcast costs no more than one lane's load, and saves an exchange.
    loaded.row_state = wanted && is_rowwise(kind) ? *row.states.at(0) : 0.0f;
    if constexpr (kRounds) {
      loaded.key =
          wanted && rounds(format, row) ? *rounding_key_at(row.table, row.slot) : kEmptyKey;
    }
    return loaded;
  }

  template <class Format>
  __device__ __forceinline__ bool rounds(Format format, Row const& row) const {
    if constexpr (kKind != kAnyKind) return true;
    return row.table.rounds_stochastically != 0 && format.type != ValueType::kFloat32;
  }

  template <class Format>
  __device__ __forceinline__ void store_rounded(Format format, Row const& row, int32_t column,
                                                Loaded const& loaded, float4 const& w) const {
    auto const& seed = seeds[row.table_index];
    auto const quad = static_cast<uint32_t>(column) / 4;
    if constexpr (kKind != kAnyKind) {
      store_vector<false>(row.values + column * 2, rounded_halves(seed, loaded.key, quad, w));
    } else {
      auto const halves = rounded_quad(seed, loaded.key, quad, format.type, w);
      store_quad(format, row.values, column, row.dim, halves);
    }
  }

  template <class Format>
  __device__ __forceinline__ float4 state_of(Format format, Row const& row, Loaded const& loaded,
                                             int state) const {
    if (!row.is_new) return to_floats(state_format(format, row, state), loaded.state[state]);
    auto const initial = row.table.state_initial[state];
    return {initial, initial, initial, initial};
  }

  __device__ __forceinline__ bool needs_squares(Row const& row) const {
    return is_rowwise(kind_of(row.table_index));
  }

  __device__ __forceinline__ bool any_needs_squares() const {
    return kKind == kAnyKind || kRowwise;
  }

  __device__ __forceinline__ bool looks_ahead() const {
    if (any_needs_squares()) return true;
    return checks_long_rows && (is_large == nullptr || *is_large != 0);
  }

  // Seldom called: the table is not read where a sum is finite.
  __device__ __forceinline__ bool skips(TableRef const& table, bool counts) const {
    if (table.skips_nonfinite == 0) return false;
    if (counts) fetch_add(table.counters + kNonfinite, uint64_t{1});
    return true;
  }

  __device__ __forceinline__ float mark(int32_t table_index, TableRef const& table,
                                        int32_t slot) const {
    auto const late = wide_states(kind_of(table_index)) > 0 && writes_states_late(table);
    return late ? *state_at(table, 0, slot) : 0.0f;
  }

  __device__ __forceinline__ float rate(Row const& row, float squares, Loaded const& loaded,
                                        bool stores) const {
    auto const mean = approximate_quotient(squares, static_cast<float>(row.dim));
    auto state = loaded.row_state;
    auto const result = rowwise_adagrad_rate(optimizers[row.table_index], mean, &state);
    if (stores) *row.states.at(0) = state;
    return result;
  }

  __device__ __forceinline__ float rate_or_none(Row const& row, float squares, Loaded const& loaded,
                                                bool stores) const {
    if (is_finite(squares) || !skips(row.table, stores)) return rate(row, squares, loaded, stores);
    return float_from_bits(kNoRateBits);
  }

  // Read beside the sum of a row, this would be one more step on the way to its end.
  __device__ __forceinline__ float learning_rate(int32_t table_index) const {
    return kCommon == OptimizerKind::kSgd ? optimizers[table_index].learning_rate : 0.0f;
  }

  template <class Format>
  __device__ __forceinline__ void store_state(Format format, Row const& row, int32_t column,
                                              int state, float4 const& values) const {
    auto* const to = reinterpret_cast<char*>(row.states.at(state));
    store_quad(state_format(format, row, state), to, column, row.table.dim, values);
  }

  template <class Format>
  __device__ __forceinline__ void store(Format format, Row const& row, int32_t column,
                                        Loaded const& loaded, float4 const& g, float rate) const {
    Optimizer o;
    if constexpr (kCommon == OptimizerKind::kSgd) {
      o.learning_rate = row.learning_rate;
    } else {
      o = optimizers[row.table_index];  // two loads, not one for each number
    }
    auto w = to_floats(format, loaded.row);
    switch (kind_of(row.table_index)) {
      case OptimizerKind::kSgd:
        w = {sgd(o, w.x, g.x), sgd(o, w.y, g.y), sgd(o, w.z, g.z), sgd(o, w.w, g.w)};
        break;
      case OptimizerKind::kAdagrad: {
        auto s = state_of(format, row, loaded, 0);
        w = {adagrad(o, w.x, g.x, &s.x), adagrad(o, w.y, g.y, &s.y), adagrad(o, w.z, g.z, &s.z),
             adagrad(o, w.w, g.w, &s.w)};
        store_state(format, row, column, 0, s);
        break;
      }
      case OptimizerKind::kRowwiseAdagrad:
        add_scaled(w, -rate, g);
        break;
      case OptimizerKind::kAdam: {
        auto s = state_of(format, row, loaded, 0), t = state_of(format, row, loaded, 1);
        w = {adam(o, w.x, g.x, &s.x, &t.x), adam(o, w.y, g.y, &s.y, &t.y),
             adam(o, w.z, g.z, &s.z, &t.z), adam(o, w.w, g.w, &s.w, &t.w)};
        store_state(format, row, column, 0, s);
        store_state(format, row, column, 1, t);
        break;
      }
      default:
        break;  // see any_rows.cuh
    }
    if constexpr (kRounds) {
      if (rounds(format, row)) return store_rounded(format, row, column, loaded, w);
    }
    store_quad(format, row.values, column, row.dim, w);
  }
};

}  // namespace dynemb::cuda
