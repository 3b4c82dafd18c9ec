// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/swap_beside.cc: the two calls between which records move beside other work;
// their buffers stand in docs/decisions/overlap.md.
//
// XLA keeps the arrays alive between the calls because they are operands of both, and in place
// because they are results of both. Homes cannot be results beside arrays of a device, so the calls
// compare where all arrays lie: had XLA copied one, records would have gone to the copy.
#include "xla_ffi/handlers/swap_beside.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/tier_reader.h"

namespace dynemb {
namespace {

using Arrays = std::vector<void const*>;

Arrays arrays_of(WriteBackArgs const& args) {
  Arrays arrays;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const& table = args.tables[t].table;
    arrays.push_back(args.tables[t].homes);
    arrays.push_back(table.values);
    for (int s = 0; s < table.num_states; ++s) arrays.push_back(table.states[s]);
  }
  return arrays;
}

// Remembers the arrays of swaps that have begun and not ended. The homes of its first table
// distinguish a swap, because no other call may change them meanwhile.
class BegunSwaps {
 public:
  void add(WriteBackArgs const& args) {
    auto arrays = arrays_of(args);
    std::lock_guard<std::mutex> const lock(mutex_);
    auto const* const first = arrays.front();
    begun_[first] = std::move(arrays);
  }

  // Returns whether a swap of these arrays had begun; it is forgotten.
  bool remove(WriteBackArgs const& args) {
    auto const arrays = arrays_of(args);
    std::lock_guard<std::mutex> const lock(mutex_);
    auto const found = begun_.find(arrays.front());
    if (found == begun_.end() || found->second != arrays) return false;
    begun_.erase(found);
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<void const*, Arrays> begun_;
};

BegunSwaps& begun_swaps() {
  static BegunSwaps swaps;
  return swaps;
}

// Both calls have the same buffers.
struct Swap {
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_table().Attr<int64_t>("passed"); }

  WriteBackArgs args;

  void read(BufferReader& reader, TableAttrs const& attrs, int64_t passed) {
    read_each(reader, attrs, args, [&](WriteBackTable& one, CallTable const& of) {
      TierRef tier{};
      TierReader arrays(reader, of, one.table, tier);
      arrays.rows(true);
      arrays.homes();
      one.homes = const_cast<uint8_t*>(tier.homes);
      one.record_bytes = tier.record_bytes;
      one.num_slots = one.table.local_buckets * kBucketCapacity;
      one.num_rows = arrays.num_rows();
      one.counts = data<int32_t>(reader.next_arg(BufferRule::kListCounts));
      one.count = read_list(reader, one.slots, one.rows);
      one.num_arriving = read_list(reader, one.arriving, one.into);
    });
    for (int64_t i = 0; i < passed && !reader.failed(); ++i) reader.pass_on();
    reader.expect(reader.failed() || args.num_tables > 0, "a swap is about tables");
  }
};

struct BeginSwap : Swap {
  static constexpr auto kTarget = "dynemb_begin_swap";

  static ffi::Error kRun(backend::Context& context, WriteBackArgs const& args, backend::Scratch) {
    begun_swaps().add(args);
    return backend::begin_swap(context, args, {nullptr, 0});
  }
};

#ifndef DYNEMB_CUDA
// Between the two, on a CPU: XLA goes on with what does not wait for these rows, and frees no array
// before this call has ended, also where another one fails.
struct RunSwap : Swap {
  static constexpr auto kTarget = "dynemb_run_swap";

  static ffi::Future kRun(backend::Context& context, WriteBackArgs const& args, backend::Scratch) {
    ffi::Promise promise;
    ffi::Future future(promise);
    cpu::run_swap(args, context.pool, [promise]() mutable { promise.SetAvailable(); });
    return future;
  }
};
#endif

struct EndSwap : Swap {
  static constexpr auto kTarget = "dynemb_end_swap";

  static ffi::Error kRun(backend::Context& context, WriteBackArgs const& args, backend::Scratch) {
    if (begun_swaps().remove(args)) return backend::end_swap(context, args, {nullptr, 0});
    return ffi::Error::Internal(
        "end_swap: the arrays are not those of a begin_swap before it, because XLA has copied "
        "them. Call prefetch instead of prefetch_during in this program.");
  }
};

// Not compatible with graphs: a graph would have to hold both calls and all that is between.
template <class Operation>
XLA_FFI_Error* call_outside_graphs(XLA_FFI_CallFrame* frame) {
  static auto* const handler = Operation::bind().To(Handler<Operation>{}).release();
  return handler->Call(frame);
}

}  // namespace

XLA_FFI_Error* begin_swap(XLA_FFI_CallFrame* frame) {
  return call_outside_graphs<BeginSwap>(frame);
}

XLA_FFI_Error* end_swap(XLA_FFI_CallFrame* frame) { return call_outside_graphs<EndSwap>(frame); }

#ifndef DYNEMB_CUDA
XLA_FFI_Error* run_swap(XLA_FFI_CallFrame* frame) { return call_outside_graphs<RunSwap>(frame); }
#endif

}  // namespace dynemb
