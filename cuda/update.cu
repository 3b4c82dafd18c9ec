// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/update.cu: gradients are summed row by row, and a row is updated where its sum is complete.
#include "core/optimizer.h"
#include "core/row.h"
#include "cuda/gradient_sums.cuh"
#include "cuda/launch.h"
#include "cuda/prologue.cuh"

namespace dynemb::cuda {
namespace {

struct BeginUpdate {
  float const* hyper;
  OptimizerKind kinds[kMaxTables];
  Optimizer* optimizers;

  __device__ void begin(Share const& /*share*/) const {}

  template <class Call>
  __device__ NewCounters begin_table(Call const&, TableRef const& table, int32_t t) const {
    auto const step = table.counters[kStep] + 1;
    optimizers[t] = make_optimizer(in_memory(kinds)[t], hyper + t * kNumHyperParameters, step);
    return {1, {kStep, kStep}, {step, step}};
  }
};

template <class Row>
__device__ __forceinline__ AnyFormat state_format(AnyFormat, Row const& row, int state) {
  return {ValueType::kFloat32, moves_vectors(row.table.states[state], row.table.dim)};
}
template <ValueType kType, class Row>
__device__ __forceinline__ FloatVectors state_format(Vectors<kType>, Row const&, int) {
  return {};
}

// kKind: the optimizer of all tables of the call, or kAnyKind: each table's own. Knowing it saves
// registers, and so lets more warps wait for memory at the same time.
constexpr int kAnyKind = -1;

// Of SGD, Adagrad, row-wise Adagrad, Adam: gradients of a tile on their way, and blocks on a
// multiprocessor at the same time. More of one leaves registers for less of the other.
constexpr int kAheadOf[] = {3, 2, 4, 2};
constexpr int kWarpsOf[] = {36, 32, 32, 32};

template <int kKind>
struct UpdateRows {
  static constexpr int kAhead = kKind == kAnyKind ? 2 : kAheadOf[kKind];
  static constexpr int kWarps = kKind == kAnyKind ? 16 : kWarpsOf[kKind];
  static constexpr auto kCommon = static_cast<OptimizerKind>(kKind);  // none if kAnyKind
  static constexpr int kStates = kKind == kAnyKind ? 2 : num_states(kCommon);
  static constexpr bool kRowwise = is_rowwise(kCommon);

  using Row = SummedRow<kStates>;

  Optimizer const* optimizers;

  __device__ __forceinline__ OptimizerKind kind_of(int32_t table_index) const {
    if constexpr (kKind != kAnyKind) {
      return kCommon;
    } else {
      return optimizers[table_index].kind;
    }
  }

  struct Loaded {
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
    if constexpr (kStates == 0) {
      loaded.row = load_quad_or_any(wanted, format, row.values, column, row.dim);
    } else {
      loaded.row = load_quad_if(wanted, format, row.values, column, row.dim);
    }
    auto const kind = kind_of(row.table_index);
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      auto const* const from = reinterpret_cast<char const*>(row.states.at(s));
      auto const has_state = wanted && !row.is_new && s < wide_states(kind);
      loaded.state[s] =
          load_quad_if(has_state, state_format(format, row, s), from, column, row.dim);
    }
    // By all lanes: a broadcast costs no more than one lane's load, and nobody has to be told.
    loaded.row_state = wanted && is_rowwise(kind) ? *row.states.at(0) : 0.0f;
    return loaded;
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

  // Read beside the sum of a row, this would be one more step on the way to its end.
  __device__ __forceinline__ float rate_of(int32_t table_index) const {
    return kKind == static_cast<int>(OptimizerKind::kSgd) ? optimizers[table_index].learning_rate
                                                          : 0.0f;
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
    if constexpr (kKind == static_cast<int>(OptimizerKind::kSgd)) {
      o.learning_rate = row.rate;
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
    }
    store_quad(format, row.values, column, row.dim, w);
  }
};

template <class SortKey>
struct UpdateScratch {
  CallView view;
  Optimizer* optimizers;
  LongRuns long_runs;
  GradientOrder<SortKey> order;

  UpdateScratch(UpdateArgs const& args, Scratch& scratch)
      : view(take_view(args, scratch)),
        optimizers(scratch.take<Optimizer>(args.num_tables)),
        long_runs(take_long_runs(args, scratch)),
        order(args, scratch) {}
};

// Do all tables and gradients have these formats, and can all states be moved as vectors?
template <class Formats>
bool has_formats(UpdateArgs const& args) {
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const& table = args.tables[t];
    auto known = is_format<typename Formats::Stored>(table.value_type, table.values, table.dim);
    for (int s = 0; s < table.num_states; ++s) {
      known &= table.state_width[s] != table.dim || moves_vectors(table.states[s], table.dim);
    }
    if (!known) return false;
  }
  return has_gradients<typename Formats::Row>(args);
}

template <class Formats, int kKind, class SortKey>
cudaError_t launch_kind(UpdateScratch<SortKey> const& scratch,
                        SortedGradients<SortKey> const& sorted, cudaStream_t stream) {
  return launch_sums<Formats>(
      PiecesCall<SortKey, UpdateRows<kKind>>{
          scratch.view, sorted, scratch.long_runs, true, {scratch.optimizers}},
      stream);
}

int common_kind(UpdateArgs const& args) {
  for (int32_t t = 1; t < args.num_tables; ++t) {
    if (args.optimizers[t] != args.optimizers[0]) return kAnyKind;
  }
  return static_cast<int>(args.optimizers[0]);
}

// The kernel that fits most calls of these formats; one for any call where there is no other.
template <class Formats, class SortKey>
cudaError_t launch_update(UpdateArgs const& args, UpdateScratch<SortKey> const& scratch,
                          SortedGradients<SortKey> const& sorted, cudaStream_t stream) {
  if constexpr (sizeof(SortKey) == 4 && Formats::kKnown) {
    constexpr auto kSgd = static_cast<int>(OptimizerKind::kSgd);
    constexpr auto kAdagrad = static_cast<int>(OptimizerKind::kAdagrad);
    constexpr auto kRowwise = static_cast<int>(OptimizerKind::kRowwiseAdagrad);
    constexpr auto kAdam = static_cast<int>(OptimizerKind::kAdam);
    switch (common_kind(args)) {
      case kSgd:
        return launch_kind<Formats, kSgd>(scratch, sorted, stream);
      case kAdagrad:
        return launch_kind<Formats, kAdagrad>(scratch, sorted, stream);
      case kRowwise:
        return launch_kind<Formats, kRowwise>(scratch, sorted, stream);
      case kAdam:
        return launch_kind<Formats, kAdam>(scratch, sorted, stream);
      default:
        break;
    }
  }
  if (has_formats<FloatFormats>(args)) {
    return launch_kind<FloatFormats, kAnyKind>(scratch, sorted, stream);
  }
  return launch_kind<AnyFormats, kAnyKind>(scratch, sorted, stream);
}

template <class Size, class SortKey>
cudaError_t run(UpdateArgs const& args, UpdateScratch<SortKey> const& scratch,
                cudaStream_t stream) {
  BeginUpdate begin{args.hyper, {}, scratch.optimizers};
  std::copy_n(args.optimizers, args.num_tables, begin.kinds);
  auto const zeros = Zeros{scratch.long_runs.arrived, scratch.long_runs.num_rows};
  SortedGradients<SortKey> sorted;
  DYNEMB_CUDA_TRY(
      order_gradients<Size>(args, scratch.view, begin, scratch.order, zeros, &sorted, stream));
  if (scratch.order.num_items == 0) return cudaSuccess;
  if (has_formats<FloatFormats>(args)) {
    return launch_update<FloatFormats>(args, scratch, sorted, stream);
  }
  if (has_formats<HalfFormats>(args)) {
    return launch_update<HalfFormats>(args, scratch, sorted, stream);
  }
  if (has_formats<MixedFormats>(args)) {
    return launch_update<MixedFormats>(args, scratch, sorted, stream);
  }
  return launch_update<AnyFormats>(args, scratch, sorted, stream);
}

}  // namespace

size_t update_scratch_bytes(UpdateArgs const& args) {
  return with_sort_key(args, [&](auto key) {
    Scratch scratch(nullptr);
    UpdateScratch<decltype(key)>(args, scratch);
    return scratch.used();
  });
}

cudaError_t update(UpdateArgs const& args, void* memory, cudaStream_t stream) {
  if (!is_countable(args)) return cudaErrorInvalidValue;
  return with_sort_key(args, [&](auto key) {
    using SortKey = decltype(key);
    Scratch pieces(memory);
    UpdateScratch<SortKey> const scratch(args, pieces);
    return with_call_size(args.num_tables, args.num_features, [&](auto size) {
      return run<decltype(size), SortKey>(args, scratch, stream);
    });
  });
}

}  // namespace dynemb::cuda
