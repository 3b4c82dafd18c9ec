// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/update.cu: gradients are summed row by row, and a row is updated where its sum is
// complete.
#include <algorithm>

#include "core/optimizer.h"
#include "cuda/gradients/large_gradients.cuh"
#include "cuda/gradients/order.cuh"
#include "cuda/gradients/sums.cuh"
#include "cuda/gradients/update_rows.cuh"
#include "cuda/grid/prologue.cuh"
#include "cuda/launch.h"

namespace dynemb::cuda {
namespace {

struct BeginUpdate {
  float const* hyper;
  Stamp const* stamps;  // [tables], or null
  OptimizerKind kinds[kMaxTables];
  Optimizer* optimizers;
  RoundingSeed* seeds;

  __device__ __forceinline__ Stamp const* stamp_of(int32_t t) const {
    return stamps == nullptr ? nullptr : stamps + t;
  }
  __device__ __forceinline__ bool counts_lost() const { return true; }
  __device__ void begin(Share const& /*share*/) const {}

  template <class Call>
  __device__ CounterUpdates begin_table(Call const&, TableRef const& table, int32_t t) const {
    auto const step = next_step(table, stamp_of(t));
    optimizers[t] = make_optimizer(in_memory(kinds)[t], hyper + t * kNumHyperParameters, step);
    if (table.rounds_stochastically != 0) seeds[t] = rounding_seed(table.counters, step);
    return {1, {kStep, kStep}, {step, step}};
  }
};

int common_kind(UpdateArgs const& args) {
  for (int32_t t = 1; t < args.num_tables; ++t) {
    if (args.optimizers[t] != args.optimizers[0]) return kAnyKind;
  }
  return static_cast<int>(args.optimizers[0]);
}

// Whether rows are summed whole: all of them are wide, and there are kernels for their optimizer.
// One that needs the squares of a row sums it twice else, so it gains from fewer columns on.
bool takes_whole_rows(UpdateArgs const& args) {
  if (common_kind(args) == kAnyKind || total_ids(args) <= kSmallBatch) return false;
  auto const without = (is_rowwise(args.optimizers[0]) ? 1 : 2) * kColumnsOfWarp;
  return std::all_of(args.tables, args.tables + args.num_tables, [&](TableRef const& table) {
    return table.dim > without && table.dim <= kMostQuads * kColumnsOfWarp;
  });
}

bool skips_any(UpdateArgs const& args) {
  auto const skips = [](TableRef const& table) { return table.skips_nonfinite != 0; };
  return std::any_of(args.tables, args.tables + args.num_tables, skips);
}

// Whether gradients are read once more, so that rows of many columns need not be summed twice. A
// small batch has little to sum, and an optimizer that needs squares sums all columns first. Rows
// that are summed whole are tested in registers.
bool looks_for_large(UpdateArgs const& args, LongRuns const& long_runs) {
  auto const needs_squares = [](OptimizerKind kind) { return is_rowwise(kind); };
  return skips_any(args) && !takes_whole_rows(args) && long_runs.stride > kColumnsOfWarp &&
         total_ids(args) > kSmallBatch &&
         std::none_of(args.optimizers, args.optimizers + args.num_tables, needs_squares);
}

template <class SortKey>
struct UpdateScratch {
  CallView view;
  Optimizer* optimizers;
  RoundingSeed* seeds;
  LongRuns long_runs;
  uint64_t* is_large;  // of cuda/gradients/large_gradients.cuh; null where it is not asked
  GradientOrder<SortKey> order;

  UpdateScratch(UpdateArgs const& args, Scratch& scratch)
      : view(take_view(args, scratch)),
        optimizers(scratch.take<Optimizer>(args.num_tables)),
        seeds(scratch.take<RoundingSeed>(args.num_tables)),
        long_runs(take_long_runs(args, scratch)),
        is_large(looks_for_large(args, long_runs) ? long_runs.spare() : nullptr),
        order(args, scratch) {}
};

// Do all tables and gradients have these formats, and can all states be moved as vectors?
template <class Formats>
bool has_formats(UpdateArgs const& args) {
  for (int32_t t = 0; t < args.num_tables; ++t) {
    if (!is_stored_as<typename Formats::Stored>(args.tables[t])) return false;
  }
  return has_gradients<typename Formats::Row>(args);
}

// Returns how many tables round stochastically.
int rounding_tables(UpdateArgs const& args) {
  return static_cast<int>(
      std::count_if(args.tables, args.tables + args.num_tables,
                    [](TableRef const& table) { return table.rounds_stochastically != 0; }));
}

template <class Formats, int kKind, bool kRounds, class SortKey>
cudaError_t launch_kind(UpdateArgs const& args, UpdateScratch<SortKey> const& scratch,
                        SortedGradients<SortKey> const& sorted, cudaStream_t stream) {
  return launch_sums<Formats>(
      PiecesCall<SortKey, UpdateRows<kKind, kRounds>>{
          scratch.view,
          sorted,
          scratch.long_runs,
          true,
          {scratch.optimizers, skips_any(args), scratch.is_large, scratch.seeds},
          takes_whole_rows(args)},
      stream);
}

// The kernel that fits most calls of these formats; one for any call where there is no other.
template <class Formats, bool kRounds, class SortKey>
cudaError_t launch_update(UpdateArgs const& args, UpdateScratch<SortKey> const& scratch,
                          SortedGradients<SortKey> const& sorted, cudaStream_t stream) {
  if constexpr (sizeof(SortKey) == 4 && Formats::kKnown) {
    constexpr auto kSgd = static_cast<int>(OptimizerKind::kSgd);
    constexpr auto kAdagrad = static_cast<int>(OptimizerKind::kAdagrad);
    constexpr auto kRowwise = static_cast<int>(OptimizerKind::kRowwiseAdagrad);
    constexpr auto kAdam = static_cast<int>(OptimizerKind::kAdam);
    switch (common_kind(args)) {
      case kSgd:
        return launch_kind<Formats, kSgd, kRounds>(args, scratch, sorted, stream);
      case kAdagrad:
        return launch_kind<Formats, kAdagrad, kRounds>(args, scratch, sorted, stream);
      case kRowwise:
        return launch_kind<Formats, kRowwise, kRounds>(args, scratch, sorted, stream);
      case kAdam:
        return launch_kind<Formats, kAdam, kRounds>(args, scratch, sorted, stream);
      default:
        break;
    }
  }
  if (has_formats<FloatFormats>(args)) {
    return launch_kind<FloatFormats, kAnyKind, false>(args, scratch, sorted, stream);
  }
  return launch_kind<AnyFormats, kAnyKind, true>(args, scratch, sorted, stream);
}

template <class SortKey>
cudaError_t launch_update(UpdateArgs const& args, UpdateScratch<SortKey> const& scratch,
                          SortedGradients<SortKey> const& sorted, cudaStream_t stream) {
  auto const rounding = rounding_tables(args);
  if (rounding == args.num_tables && has_formats<HalfFormats>(args)) {
    return launch_update<HalfFormats, true>(args, scratch, sorted, stream);
  }
  if (rounding == args.num_tables && has_formats<MixedFormats>(args)) {
    return launch_update<MixedFormats, true>(args, scratch, sorted, stream);
  }
  if (rounding > 0) return launch_update<AnyFormats, true>(args, scratch, sorted, stream);
  if (has_formats<FloatFormats>(args)) {
    return launch_update<FloatFormats, false>(args, scratch, sorted, stream);
  }
  if (has_formats<HalfFormats>(args)) {
    return launch_update<HalfFormats, false>(args, scratch, sorted, stream);
  }
  if (has_formats<MixedFormats>(args)) {
    return launch_update<MixedFormats, false>(args, scratch, sorted, stream);
  }
  if (scratch.long_runs.stride <= kColumnsOfWarp && has_formats<FloatWidths>(args)) {
    return launch_update<FloatWidths, false>(args, scratch, sorted, stream);
  }
  return launch_update<AnyFormats, true>(args, scratch, sorted, stream);
}

template <class Size, class SortKey>
cudaError_t run(UpdateArgs const& args, UpdateScratch<SortKey> const& scratch,
                cudaStream_t stream) {
  BeginUpdate begin{args.hyper, args.stamps, {}, scratch.optimizers, scratch.seeds};
  std::copy_n(args.optimizers, args.num_tables, begin.kinds);
  auto const zeros = Zeros{scratch.long_runs.arrived, scratch.long_runs.num_rows + 1};
  SortedGradients<SortKey> sorted;
  DYNEMB_CUDA_TRY(
      order_gradients<Size>(args, scratch.view, begin, scratch.order, zeros, &sorted, stream));
  if (scratch.order.num_items == 0) return cudaSuccess;
  if (scratch.is_large != nullptr) {
    DYNEMB_CUDA_TRY(find_large_gradients(args, scratch.view, scratch.is_large, stream));
  }
  return launch_update(args, scratch, sorted, stream);
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
