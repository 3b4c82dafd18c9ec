// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/update_any.cu: the update of any optimizers. Most calls run in
// cuda/gradients/update_functor.cu. For all others gradients are summed row by row into scratch
// memory (reduce.cu), and then each row takes a step of its optimizer.
//
// The sums cross the memory twice more than there. In return there is one kernel for each
// optimizer, instead of one for each with each shape of a block.
#include <algorithm>
#include <memory>

#include "cuda/gradients/any_rows.cuh"
#include "cuda/gradients/update_functor.cuh"
#include "cuda/grid/host.h"
#include "cuda/launch.h"

namespace dynemb::cuda {
namespace {

struct PrepareCall {
  int32_t num_tables;
  float const* hyper;
  AnyOptimizer* optimizers;
  uint64_t const* counters[kMaxTables];
  OptimizerKind kinds[kMaxTables];
};

// A thread a table: the powers of Adam's decays take many registers, which rows need.
__global__ void __launch_bounds__(kMaxTables)
    prepare_kernel(__grid_constant__ PrepareCall const call) {
  auto const t = static_cast<int>(threadIdx.x);
  if (t >= call.num_tables) return;
  auto const* const hyper = call.hyper + t * kNumAnyHyper;
  call.optimizers[t] = prepare_optimizer(call.kinds[t], hyper, call.counters[t][kStep]);
}

int64_t ids_of_table(UpdateArgs const& args, int32_t t) {
  int64_t ids = 0;
  for (int32_t f = 0; f < args.num_features; ++f) {
    if (args.features[f].table == t) ids += args.features[f].num_ids;
  }
  return ids;
}

// What the sums of the rows take, whichever table an id belongs to.
struct AnyScratch {
  int64_t ids = 0;
  int32_t stride = 4;
  AnyOptimizer* optimizers;
  int32_t* slots;  // [ids]
  float* sums;     // [ids, stride]

  AnyScratch(UpdateArgs const& args, Scratch& scratch) {
    for (int32_t f = 0; f < args.num_features; ++f) ids += args.features[f].num_ids;
    for (int32_t t = 0; t < args.num_tables; ++t) {
      stride = std::max(stride, (args.tables[t].dim + 3) / 4 * 4);
    }
    optimizers = scratch.take<AnyOptimizer>(args.num_tables);
    slots = scratch.take<int32_t>(ids);
    sums = scratch.take<float>(ids * stride);
  }
};

// Makes the reduction of the same batch. Each table has its part of the scratch memory, at a row's
// stride.
std::unique_ptr<ReduceArgs> reduction_of(UpdateArgs const& args, AnyScratch const& scratch) {
  auto reduce = std::make_unique<ReduceArgs>();
  reduce->num_tables = args.num_tables;
  reduce->num_features = args.num_features;
  reduce->counts_step = 1;
  reduce->stamps = args.stamps;
  reduce->joins_lookups = args.joins_lookups;
  std::copy_n(args.tables, args.num_tables, reduce->tables);
  std::copy_n(args.features, args.num_features, reduce->features);
  int64_t first = 0;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto& sums = reduce->sums[t];
    sums.unique_slots = scratch.slots + first;
    sums.rows = scratch.sums + first * scratch.stride;
    sums.row_type = ValueType::kFloat32;
    sums.places = {};
    sums.capacity = ids_of_table(args, t);
    sums.leaves_unused = 1;
    first += sums.capacity;
  }
  return reduce;
}

// Do the rows of all tables of the call lie as vectors of float32?
bool has_float_vectors(AnyCall const& call) {
  return std::all_of(call.tables, call.tables + call.num_tables, [](AnyTable const& table) {
    return is_format<FloatVectors>(table.value_type, table.values, table.dim);
  });
}

AnyTable any_table(TableRef const& from, RowSums const& sums, AnyOptimizer const* optimizer) {
  AnyTable table{};
  table.values = from.values;
  std::copy_n(from.states, kMaxStates, table.states);
  std::copy_n(from.state_initial, kMaxStates, table.state_initial);
  table.counters = from.counters;
  auto const rounds = from.rounds_stochastically != 0;
  table.index = rounds ? from.index : nullptr;
  table.row_keys = rounds && from.index == nullptr ? from.row_keys : nullptr;
  table.policy = from.policy;
  table.slots = sums.unique_slots;
  table.sums = static_cast<float const*>(sums.rows);
  table.optimizer = optimizer;
  table.capacity = sums.capacity;
  table.dim = from.dim;
  table.value_type = from.value_type;
  table.half_states = from.half_states;
  table.skips_nonfinite = from.skips_nonfinite != 0;
  return table;
}

// Fills in the tables of one optimizer. Returns how many blocks their rows take.
int64_t fill(UpdateArgs const& args, ReduceArgs const& reduce, AnyScratch const& scratch,
             OptimizerKind kind, AnyCall* call) {
  call->num_tables = 0;
  int64_t blocks = 0;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const& sums = reduce.sums[t];
    if (args.optimizers[t] != kind || sums.capacity == 0) continue;
    auto& table = call->tables[call->num_tables++];
    table = any_table(args.tables[t], sums, scratch.optimizers + t);
    table.first_block = blocks;
    blocks += ceil_div(sums.capacity, any_rows_of_block(table.dim));
  }
  return blocks;
}

cudaError_t update_kind(OptimizerKind kind, AnyCall const& call, int64_t blocks,
                        cudaStream_t stream) {
  auto status = cudaSuccess;
  with_optimizer(kind, [&](auto type) {
    using Functor = typename decltype(type)::Type;
    status = has_float_vectors(call)
                 ? launch(any_rows_kernel<Functor, FloatFormats>, blocks, stream, call)
                 : launch(any_rows_kernel<Functor, AnyFormats>, blocks, stream, call);
  });
  return status;
}

}  // namespace

cudaError_t prepare_optimizers(UpdateArgs const& args, AnyOptimizer* optimizers,
                               cudaStream_t stream) {
  PrepareCall call{args.num_tables, args.hyper, optimizers, {}, {}};
  for (int32_t t = 0; t < args.num_tables; ++t) call.counters[t] = args.tables[t].counters;
  std::copy_n(args.optimizers, args.num_tables, call.kinds);
  return launch(prepare_kernel, 1, stream, call, 0, kMaxTables);
}

size_t update_any_scratch_bytes(UpdateArgs const& args) {
  // Which of the two a call takes follows from formats, which are not known here.
  Scratch scratch(nullptr);
  AnyScratch const own(args, scratch);
  return std::max(scratch.used() + reduce_scratch_bytes(*reduction_of(args, own)),
                  update_functor_scratch_bytes(args));
}

cudaError_t update_any(UpdateArgs const& args, void* memory, cudaStream_t stream) {
  if (updates_in_sums(args)) return update_functor(args, memory, stream);
  Scratch pieces(memory);
  AnyScratch const scratch(args, pieces);
  auto const reduction = reduction_of(args, scratch);
  DYNEMB_CUDA_TRY(reduce(*reduction, static_cast<char*>(memory) + pieces.used(), stream));
  if (scratch.ids == 0) return cudaSuccess;
  DYNEMB_CUDA_TRY(prepare_optimizers(args, scratch.optimizers, stream));
  for (int kind = 0; kind < static_cast<int>(OptimizerKind::kNumKinds); ++kind) {
    AnyCall call{};
    auto const wanted = static_cast<OptimizerKind>(kind);
    auto const blocks = fill(args, *reduction, scratch, wanted, &call);
    if (blocks > 0) DYNEMB_CUDA_TRY(update_kind(wanted, call, blocks, stream));
  }
  return cudaSuccess;
}

}  // namespace dynemb::cuda
