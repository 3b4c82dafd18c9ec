// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/update_functor.cu: gradients are summed row by row, and a row takes the step of
// its optimizer (core/optimizers/) where its sum is complete.
#include <algorithm>

#include "core/optimizers/list.h"
#include "cuda/gradients/functor_rows.cuh"
#include "cuda/gradients/order.cuh"
#include "cuda/gradients/sums.cuh"
#include "cuda/gradients/update_functor.cuh"
#include "cuda/grid/prologue.cuh"

namespace dynemb::cuda {
namespace {

using SortKey = uint32_t;

struct BeginStep {
  Stamp const* stamps;  // [tables], or null

  __device__ __forceinline__ Stamp const* stamp_of(int32_t t) const {
    return stamps == nullptr ? nullptr : stamps + t;
  }
  __device__ __forceinline__ bool counts_lost() const { return true; }
  __device__ void begin(Share const& /*share*/) const {}

  template <class Call>
  __device__ CounterUpdates begin_table(Call const&, TableRef const& table, int32_t t) const {
    auto const step = next_step(table, stamp_of(t));
    return {1, {kStep, kStep}, {step, step}};
  }
};

struct FunctorScratch {
  CallView view;
  AnyOptimizer* optimizers;
  LongRuns long_runs;
  GradientOrder<SortKey> order;

  FunctorScratch(UpdateArgs const& args, Scratch& scratch)
      : view(take_view(args, scratch)),
        optimizers(scratch.take<AnyOptimizer>(args.num_tables)),
        long_runs(take_long_runs(args, scratch)),
        order(args, scratch) {}
};

// The shapes of rows that one step of a warp takes.
template <class Function>
cudaError_t with_short_rows(int64_t items, int32_t columns, Function const& function) {
  if (items <= kSmallBatch) return function(FewItems{});
  if (columns > kColumnsOfWarp / 2) return function(WideRows{});
  return function(NarrowRows{});
}

template <class Functor>
cudaError_t launch_functor(FunctorScratch const& scratch, SortedGradients<SortKey> const& sorted,
                           cudaStream_t stream) {
  auto const call = PiecesCall<SortKey, FunctorRows<Functor>>{
      scratch.view, sorted, scratch.long_runs, true, {scratch.optimizers}};
  return with_short_rows(sorted.num_items, scratch.long_runs.stride, [&](auto shape) {
    return launch_pieces<FloatFormats, decltype(shape)>(call, stream);
  });
}

bool has_short_floats(TableRef const& table) {
  return is_stored_as<FloatVectors>(table) && table.half_states == 0 && table.dim <= kColumnsOfWarp;
}

template <class Size>
cudaError_t run(UpdateArgs const& args, FunctorScratch const& scratch, cudaStream_t stream) {
  auto const zeros = Zeros{scratch.long_runs.arrived, scratch.long_runs.num_rows};
  SortedGradients<SortKey> sorted;
  DYNEMB_CUDA_TRY(order_gradients<Size>(args, scratch.view, BeginStep{args.stamps}, scratch.order,
                                        zeros, &sorted, stream));
  if (scratch.order.num_items == 0) return cudaSuccess;
  DYNEMB_CUDA_TRY(prepare_optimizers(args, scratch.optimizers, stream));
  auto status = cudaSuccess;
  with_optimizer(args.optimizers[0], [&](auto type) {
    using Functor = typename decltype(type)::Type;
    status = launch_functor<Functor>(scratch, sorted, stream);
  });
  return status;
}

}  // namespace

bool updates_in_sums(UpdateArgs const& args) {
  for (int32_t t = 0; t < args.num_tables; ++t) {
    if (args.optimizers[t] != args.optimizers[0] || !has_short_floats(args.tables[t])) return false;
  }
  return args.num_tables > 0 && KeyLayout(args).key_bits < 32 && has_gradients<FloatVectors>(args);
}

size_t update_functor_scratch_bytes(UpdateArgs const& args) {
  Scratch scratch(nullptr);
  FunctorScratch(args, scratch);
  return scratch.used();
}

cudaError_t update_functor(UpdateArgs const& args, void* memory, cudaStream_t stream) {
  if (!is_countable(args)) return cudaErrorInvalidValue;
  Scratch pieces(memory);
  FunctorScratch const scratch(args, pieces);
  return with_call_size(args.num_tables, args.num_features,
                        [&](auto size) { return run<decltype(size)>(args, scratch, stream); });
}

}  // namespace dynemb::cuda
