// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/large_update.h: the steps of an update by SGD with a rate of 1, of a batch that
// several kernels sort. A test puts its own steps between them.
#pragma once

#include <vector>

#include "cuda/gradients/large_order.cuh"
#include "cuda/gradients/sums.cuh"
#include "cuda/gradients/update_rows.cuh"
#include "tests/core/test_table.h"
#include "tests/cuda/scratch_memory.h"

namespace dynemb::testing {

// What an update begins with, as in cuda/gradients/update.cu.
struct BeginUpdate {
  __device__ Stamp const* stamp_of(int32_t) const { return nullptr; }
  __device__ bool counts_lost() const { return true; }
  __device__ void begin(cuda::Share const&) const {}
  template <class Call>
  __device__ cuda::CounterUpdates begin_table(Call const&, TableRef const& table, int32_t) const {
    auto const step = table.counters[kStep] + 1;
    return {1, {kStep, kStep}, {step, step}};
  }
};

template <class SortKey>
struct LargeUpdateScratch {
  cuda::CallView view;
  cuda::LongRuns runs;
  cuda::GradientOrder<SortKey> order;

  LargeUpdateScratch(UpdateArgs const& args, cuda::Scratch& scratch)
      : view(take_view(args, scratch)), runs(take_long_runs(args, scratch)), order(args, scratch) {}

  static LargeUpdateScratch at(void* base, UpdateArgs const& args) {
    cuda::Scratch scratch(base);
    return {args, scratch};
  }

  static size_t bytes(UpdateArgs const& args) {
    cuda::Scratch scratch(nullptr);
    LargeUpdateScratch(args, scratch);
    return scratch.used();
  }
};

template <class SortKey>
struct LargeUpdate {
  using Memory = LargeUpdateScratch<SortKey>;

  ScratchMemory memory;
  Memory scratch;
  cuda::SortedGradients<SortKey> sorted{};

  explicit LargeUpdate(UpdateArgs const& args)
      : memory(Memory::bytes(args)), scratch(Memory::at(memory.first(), args)) {}

  void sort(UpdateArgs const& args) {
    using Size = cuda::CallSize<32, 32>;
    auto const zeros = cuda::Zeros{scratch.runs.arrived, scratch.runs.num_rows};
    CHECK(cuda::order_large<Size>(args, scratch.view, BeginUpdate{}, scratch.order, zeros, &sorted,
                                  nullptr) == cudaSuccess);
  }

  template <class Shape>
  void sum() const {
    float const hyper[kNumHyperParameters] = {1.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    std::vector<Optimizer> const optimizers(size_t(scratch.view.num_tables),
                                            make_optimizer(OptimizerKind::kSgd, hyper, 1));
    using Sink = cuda::UpdateRows<static_cast<int>(OptimizerKind::kSgd)>;
    auto const call = cuda::PiecesCall<SortKey, Sink>{
        scratch.view, sorted, scratch.runs, true, {optimizers.data(), false, nullptr, nullptr}};
    CHECK((cuda::launch_pieces<cuda::FloatFormats, Shape>(call, nullptr)) == cudaSuccess);
  }
};

}  // namespace dynemb::testing
