// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/grid/prologue.cuh: what the first kernel of an operation does, in blocks of its own if there
// is more to do in it: it copies the call to where later kernels read it, and counts the operation
// in each table's counters.
//
// Little work, but all of it waits for memory that is in no cache: parameters, counters, rows of
// counters. So one warp of a block loads counters at once, by the parameter's pointers, while the
// others copy. No thread copies more than a few words: there are as many blocks as that takes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/grid/call.cuh"

namespace dynemb::cuda {

// New values of counters that are the same in each row.
struct CounterUpdates {
  int32_t count;
  Counter counters[2];
  uint64_t values[2];
};

// Says which counters of one table change, and how.
struct CounterRows {
  CounterUpdates updates;
  uint64_t* counters;
  int32_t num_rows;
};

// Numbers one of several that work together.
struct Share {
  int32_t rank;
  int32_t size;
};

template <class Size, class Op>
struct Prologue {
  CallArgs<Size> call;
  CallView view;
  Op op;  // begin(share): by most threads; begin_table(call, table, t): once for each table
};

// All lanes of a warp call this.
__device__ __forceinline__ void set_counters(CounterRows const table) {
  for (auto row = lane_id(); row < table.num_rows; row += 32) {
    auto* const counters = table.counters + row * kNumCounters;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (c < table.updates.count) counters[table.updates.counters[c]] = table.updates.values[c];
    }
  }
}

struct Words {
  uint32_t const* from;
  uint32_t* to;
  int32_t count;
};

template <class T>
__device__ __forceinline__ Words words_of(T const* from, T* to, int32_t count) {
  static_assert(sizeof(T) % 4 == 0, "copied in words");
  return {reinterpret_cast<uint32_t const*>(in_memory(from)), reinterpret_cast<uint32_t*>(to),
          count * static_cast<int32_t>(sizeof(T) / 4)};
}

// All arrays of the view, as if they were one: what a thread waits for in one of them it does not
// wait for again in the next.
template <class Size>
__device__ __forceinline__ void copy_call(CallArgs<Size> const& call, CallView const& view,
                                          Share const& share) {
  Words const arrays[] = {words_of(call.tables, view.tables, call.num_tables),
                          words_of(call.features, view.features, call.num_features),
                          words_of(call.first_slot, view.first_slot, call.num_tables + 1),
                          words_of(call.first_item, view.first_item, call.num_features + 1)};
  int32_t total = 0;
  for (auto const& array : arrays) total += array.count;
  for (auto word = share.rank; word < total; word += share.size) {
    auto i = word;
    uint32_t const* from = nullptr;
    uint32_t* to = nullptr;
#pragma unroll
    for (auto const& array : arrays) {
      if (i >= 0 && i < array.count) from = array.from + i, to = array.to + i;
      i -= array.count;
    }
    *to = *from;
  }
}

// By the blocks of `blocks`, which take turns with the tables. `own` is shared memory of the block.
template <class Size, class Op>
__device__ __forceinline__ void run_prologue(Prologue<Size, Op> const& p, Share const& blocks,
                                             CounterRows (&own)[Size::tables]) {
  auto const& call = p.call;
  auto const threads = static_cast<int32_t>(blockDim.x);
  auto const thread = static_cast<int32_t>(threadIdx.x);
  auto const table_at = [&](int32_t i) { return blocks.rank + i * blocks.size; };
  if (thread < 32) {
    for (auto i = thread; table_at(i) < call.num_tables; i += 32) {
      auto const& table = in_memory(call.tables)[table_at(i)];
      // Read before anything is written, so that all of it is on its way together.
      auto* const counters = table.counters;
      auto const num_rows = table.counter_rows;
      auto const checks = table.index != nullptr && !keeps_slots(table);  // groups have no ids
      own[i] = {p.op.begin_table(call, table, table_at(i)), counters, num_rows};
      p.view.checks_keys[table_at(i)] = checks;
    }
  } else {
    auto const copying = threads - 32;
    auto const share = Share{blocks.rank * copying + thread - 32, blocks.size * copying};
    copy_call(call, p.view, share);
    p.op.begin(share);
  }
  __syncthreads();
  for (auto i = thread / 32; table_at(i) < call.num_tables; i += threads / 32) set_counters(own[i]);
}

template <class Size, class Op>
__global__ void __launch_bounds__(kThreads)
    prologue_kernel(__grid_constant__ Prologue<Size, Op> const p) {
  __shared__ CounterRows own[Size::tables];
  auto const blocks = Share{static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(gridDim.x)};
  run_prologue(p, blocks, own);
}

// ---- host ---------------------------------------------------------------------------------------

// Returns the blocks of the kernel that `cut` is for (fill_call).
template <class Size, class Args, class CutFunction, class Op>
int64_t fill_prologue(Args const& args, CutFunction const& cut, CallView const& view, Op const& op,
                      Prologue<Size, Op>* p, int warps = kWarpsPerBlock) {
  p->view = view;
  p->op = op;
  return fill_call<Size>(args, cut, &p->call, warps);
}

template <class Args>
int64_t prologue_blocks(Args const& args) {
  constexpr int kTablesOfBlock = 4;  // a table's rows of counters are 64 sectors, or fewer
  constexpr int kFeaturesOfBlock = 8;
  return std::max({int64_t{1}, ceil_div(args.num_tables, kTablesOfBlock),
                   ceil_div(args.num_features, kFeaturesOfBlock)});
}

template <class Size, class Args, class Op>
cudaError_t launch_prologue(Args const& args, CallView const& view, Op const& op,
                            cudaStream_t stream) {
  Prologue<Size, Op> p;
  fill_prologue(args, cut_ids, view, op, &p);
  return launch(prologue_kernel<Size, Op>, prologue_blocks(args), stream, p);
}

}  // namespace dynemb::cuda
