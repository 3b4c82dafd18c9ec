// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/reduce.cc: the sums of the gradients of each row of a batch.
#include "xla_ffi/handlers/feature_operation.h"
#include "xla_ffi/handlers/registrations.h"

namespace dynemb {
namespace {

// Are there as many places for the sums of each table as it has ids?
void check_capacities(BufferReader& reader, ReduceArgs const& args) {
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto room = args.sums[t].capacity;
    for (int32_t f = 0; f < args.num_features; ++f) {
      if (args.features[f].table == t) room -= args.features[f].num_ids;
    }
    reader.expect(room == 0, "a table must have a unique slot for each of its ids");
  }
}

struct Reduce {
  static constexpr auto kTarget = "dynemb_reduce";
  static constexpr auto kRun = &backend::reduce;
  static auto bind() {
    return bind_features().Attr<int64_t>("stamped").Attr<int64_t>("joined").Attr<int64_t>(
        "counts_step");
  }

  ReduceArgs args;

  void read(BufferReader& reader, TableAttrs const& attrs, IntAttr features, int64_t stamped,
            int64_t joined, int64_t counts_step) {
    if (!set_counts(reader, args, attrs, features)) return;
    args.counts_step = counts_step != 0 ? 1 : 0;
    args.joins_lookups = joined != 0 ? 1 : 0;
    args.stamps = stamps_of_lookup(reader, stamped);
    read_tables(reader, attrs, {false, false, true}, true, args.num_tables, args.tables);
    for (int32_t t = 0; t < args.num_tables; ++t) read_sums(reader, t);
    read_gradients(reader, features_of(features, args), true);
    if (!reader.failed()) check_capacities(reader, args);
  }

  void read_sums(BufferReader& reader, int32_t t) {
    reader.at("table ", t);
    reader.sizes().forget(kNumUnique, kDim);
    auto const slots = reader.next_ret(BufferRule::kUniqueSlots);
    auto const gradients = reader.next_ret(BufferRule::kRowGradients);
    auto const count = static_cast<int64_t>(slots.element_count());
    args.sums[t] = {data<int32_t>(slots), gradients.untyped_data(), {}, count, ValueType::kFloat32};
    auto const dims = gradients.dimensions();
    args.tables[t].dim = dims.size() == 2 ? static_cast<int32_t>(dims[1]) : 0;
  }

  static size_t scratch_bytes(CallShape const& shape) {
    return feature_scratch_bytes<ReduceArgs, backend::reduce_scratch_bytes>(shape);
  }
};

}  // namespace

Registration reduce_registration() { return registration_of<Reduce>(); }

}  // namespace dynemb
