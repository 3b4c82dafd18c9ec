// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/reduce.cu: gradients are summed row by row, and the sums are returned.
#include "core/slot.h"
#include "cuda/exchange/peer_group.h"
#include "cuda/exchange/round.cuh"
#include "cuda/gradients/given_order.cuh"
#include "cuda/gradients/order.cuh"
#include "cuda/gradients/ordered_sums.cuh"
#include "cuda/gradients/sums.cuh"
#include "cuda/grid/prologue.cuh"
#include "cuda/launch.h"

namespace dynemb::cuda {
namespace {

struct BeginReduce {
  int32_t counts_step;
  Stamp const* stamps;  // [tables], or null
  RowSums given[kMaxTables];
  RowSums* targets;
  int64_t* first_of_feature;  // of its positions, among those of the table

  __device__ __forceinline__ Stamp const* stamp_of(int32_t t) const {
    return stamps == nullptr ? nullptr : stamps + t;
  }
  __device__ __forceinline__ bool counts_lost() const { return counts_step != 0; }
  __device__ void begin(Share const& /*share*/) const {}

  template <class Call>
  __device__ CounterUpdates begin_table(Call const& call, TableRef const& table, int32_t t) const {
    targets[t] = in_memory(given)[t];
    int64_t next = 0;
    for (int32_t f = 0; f < call.num_features; ++f) {
      if (call.features[f].table != t) continue;
      first_of_feature[f] = next;
      next += call.features[f].num_ids;
    }
    if (counts_step == 0) return {0, {kStep, kStep}, {0, 0}};
    auto const step = next_step(table, stamp_of(t));
    return {1, {kStep, kStep}, {step, step}};
  }
};

struct ReduceRows {
  static constexpr int kWarps = 32;
  static constexpr int kAhead = 4;
  static constexpr int kStates = 0;
  static constexpr bool kRowwise = false;
  static constexpr bool kSumsWholeRows = false;
  static constexpr bool kChecksRows = false;
  static constexpr bool kUpdatesRows = false;
  static constexpr bool kTakesOrders = true;

  CallView view;
  RowSums const* targets;
  int64_t const* first_of_feature;
  Letter const* letters;  // of the GPUs that get the sums; or null
  int32_t me;             // this GPU's rank among them

  struct Loaded {};

  template <class Format>
  __device__ __forceinline__ Loaded load(Format, SummedRow<0> const&, int32_t, bool) const {
    return {};
  }
  __device__ __forceinline__ bool needs_squares(SummedRow<0> const&) const { return false; }
  __device__ __forceinline__ bool any_needs_squares() const { return false; }
  __device__ __forceinline__ bool looks_ahead() const { return false; }
  __device__ __forceinline__ bool skips(TableRef const&, bool) const { return false; }
  __device__ __forceinline__ float mark(int32_t, TableRef const&, int32_t) const { return 0.0f; }
  __device__ __forceinline__ float learning_rate(int32_t) const { return 0.0f; }
  __device__ __forceinline__ float rate_or_none(SummedRow<0> const&, float, Loaded const&,
                                                bool) const {
    return 0.0f;
  }

  __device__ __forceinline__ int64_t index_of(SummedRow<0> const& row) const {
    if (targets[row.table_index].unique_slots == nullptr) return row.slot;
    auto const place = place_of(view, row.first_item);
    return first_of_feature[place.feature] + place.position;
  }

  template <class Format>
  __device__ __forceinline__ void store(Format, SummedRow<0> const& row, int32_t column,
                                        Loaded const&, float4 const& sum, float) const {
    auto const& target = targets[row.table_index];
    auto const index = index_of(row);
    auto const dim = row.table.dim;
    auto const format = AnyFormat{target.row_type, moves_vectors(target.rows, dim)};
    auto* rows = target.rows;
    auto from = index;
    if (letters != nullptr) {  // there, the group of this GPU is meant
      auto const owner = quotient(index, target.places.group);
      rows = reinterpret_cast<void*>(letters[owner].arrays[row.table_index]);
      from += (me - owner) * target.places.group;
    }
    auto const offset = row_offset(target.places, from, dim);
    store_quad(format, element_pointer(format, rows, offset), column, dim, sum);
    if (column == 0 && target.unique_slots != nullptr) target.unique_slots[index] = row.slot;
  }
};

struct ClearCall {
  TableRef const* tables;
  RowSums const* targets;
};

// Each table has a row of blocks. Sums that have a place each are not cleared.
__global__ void __launch_bounds__(kThreads) clear_kernel(ClearCall const call) {
  auto const& target = call.targets[blockIdx.y];
  if (target.unique_slots == nullptr) return;
  auto const step = int64_t{gridDim.x} * kThreads;
  auto const first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (auto i = first; i < target.capacity; i += step) target.unique_slots[i] = -1;
  if (target.leaves_unused != 0) return;
  auto const values = target.capacity * call.tables[blockIdx.y].dim;
  for (auto i = first; i < values; i += step) static_cast<float*>(target.rows)[i] = 0.0f;
}

template <class SortKey>
struct ReduceScratch {
  CallView view;
  RowSums* targets;
  int64_t* first_of_feature;
  LongRuns long_runs;
  GradientOrder<SortKey> order;

  ReduceScratch(ReduceArgs const& args, Scratch& scratch)
      : view(take_view(args, scratch)),
        targets(scratch.take<RowSums>(args.num_tables)),
        first_of_feature(scratch.take<int64_t>(args.num_features)),
        long_runs(take_long_runs(args, scratch)),
        order(args, scratch) {}
};

cudaError_t clear(ReduceArgs const& args, ClearCall const& call, cudaStream_t stream) {
  int64_t most = 0;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const& sums = args.sums[t];
    if (sums.unique_slots == nullptr) continue;
    most = std::max(most, sums.capacity * args.tables[t].dim);
  }
  if (most == 0) return cudaSuccess;
  auto const blocks = persistent_blocks(ceil_div(most, kThreads), 8);
  auto const grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(args.num_tables));
  clear_kernel<<<grid, kThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

// Tells the peers where their sums go, table by table, and waits until they have room for those.
cudaError_t arrive_at_peers(ReduceArgs const& args, PeersRef const& peers, cudaStream_t stream) {
  static_assert(kMaxTables <= kMostExchanged, "a letter has an address for each table");
  void const* rows[kMaxTables];
  ProgramHash hash;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const& sums = args.sums[t];
    rows[t] = sums.rows;
    for (auto const number : {sums.capacity, int64_t{sums.places.group}, sums.places.stride}) {
      hash.add(number);
    }
  }
  auto const letter = letter_of(rows, args.num_tables, nullptr, hash.value);
  return arrive(peers, letter, args.num_tables, args.peers.rank, stream);
}

template <class SortKey>
cudaError_t launch_sums_of(ReduceArgs const& args, PiecesCall<SortKey, ReduceRows> const& call,
                           cudaStream_t stream) {
  if (call.sorted.num_items == 0) return cudaSuccess;
  if (has_gradients<FloatVectors>(args)) return launch_sums<FloatFormats>(call, stream);
  if (call.long_runs.stride <= kColumnsOfWarp && has_gradients<Floats>(args)) {
    return launch_sums<FloatWidths>(call, stream);
  }
  return launch_sums<AnyFormats>(call, stream);
}

template <class Size, class SortKey>
cudaError_t run(ReduceArgs const& args, ReduceScratch<SortKey> const& scratch,
                PeersRef const* peers, cudaStream_t stream) {
  BeginReduce begin{args.counts_step, args.stamps, {}, scratch.targets, scratch.first_of_feature};
  std::copy_n(args.sums, args.num_tables, begin.given);
  auto const zeros = Zeros{scratch.long_runs.arrived, scratch.long_runs.num_rows};
  auto const* const letters = peers == nullptr ? nullptr : peers->boxes[peers->me]->letters;
  auto const sink = ReduceRows{scratch.view, scratch.targets, scratch.first_of_feature, letters,
                               peers == nullptr ? 0 : peers->me};
  PiecesCall<SortKey, ReduceRows> call{
      scratch.view, {}, scratch.long_runs, args.counts_step != 0, sink};
  auto const has_items = scratch.order.num_items > 0;
  auto const is_given = args.order.slots != nullptr && has_items;
  auto const has_positions = args.order.positions != nullptr && has_items;
  DYNEMB_CUDA_TRY(is_given ? take_order<Size>(args, scratch.view, begin, scratch.order, zeros,
                                              &call.sorted, stream)
                  : has_positions ? take_positions<Size>(args, scratch.view, begin, scratch.order,
                                                         zeros, &call.sorted, stream)
                                  : order_gradients<Size>(args, scratch.view, begin, scratch.order,
                                                          zeros, &call.sorted, stream));
  DYNEMB_CUDA_TRY(clear(args, {scratch.view.tables, scratch.targets}, stream));
  if (peers == nullptr) return launch_sums_of(args, call, stream);
  DYNEMB_CUDA_TRY(arrive_at_peers(args, *peers, stream));
  DYNEMB_CUDA_TRY(launch_sums_of(args, call, stream));
  return leave_round(*peers, stream);
}

}  // namespace

size_t reduce_scratch_bytes(ReduceArgs const& args) {
  return with_sort_key(args, [&](auto key) {
    Scratch scratch(nullptr);
    ReduceScratch<decltype(key)>(args, scratch);
    return scratch.used();
  });
}

cudaError_t reduce(ReduceArgs const& args, void* memory, cudaStream_t stream) {
  if (!is_countable(args)) return cudaErrorInvalidValue;
  PeersRef peers{};
  auto const& given = args.peers;
  auto const has_peers = given.num_devices > 0;
  if (has_peers && !find_peers(given.devices, given.num_devices, given.shards, &peers)) {
    return cudaErrorInvalidDevice;
  }
  return with_sort_key(args, [&](auto key) {
    using SortKey = decltype(key);
    Scratch pieces(memory);
    ReduceScratch<SortKey> const scratch(args, pieces);
    auto const& long_runs = scratch.long_runs;
    if (has_ordered_sums(args, long_runs.num_rows)) {
      return ordered_sums(args, long_runs.partial, stream);
    }
    return with_call_size(args.num_tables, args.num_features, [&](auto size) {
      return run<decltype(size), SortKey>(args, scratch, has_peers ? &peers : nullptr, stream);
    });
  });
}

}  // namespace dynemb::cuda
