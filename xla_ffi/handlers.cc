// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers.cc: one handler an operation: read, check, run. Compiled once a backend.
#include "xla_ffi/handlers.h"

#include <memory>
#include <vector>

#include "core/args.h"
#include "xla_ffi/backend.h"
#include "xla_ffi/buffers.h"

namespace dynemb {
namespace {

using Args = ffi::RemainingArgs;
using Rets = ffi::RemainingRets;
using Run = backend::Context;

template <class T>
T* data(ffi::AnyBuffer const& buffer) {
  return static_cast<T*>(buffer.untyped_data());
}

// The last result of every call, empty where an operation needs none; and the last operand, which
// says nothing (jax_dynemb/ops/_call.py).
backend::Scratch read_scratch(BufferReader& reader) {
  reader.next_arg("work");
  auto const scratch = reader.next_ret("scratch");
  return {scratch.untyped_data(), scratch.size_bytes()};
}

// Counts tables and features into the struct; false if there are too many. The struct has 30 kB, of
// which most calls use little: nothing else of it is set before it is known, every field by its
// handler.
template <class OpArgs>
bool set_counts(BufferReader& reader, OpArgs& args, IntAttr tables, IntAttr features) {
  args.num_tables = count_rows(tables, kNumTableFields);
  args.num_features = count_rows(features, kNumFeatureFields);
  auto const fits = args.num_tables <= kMaxTables && args.num_features <= kMaxFeatures;
  reader.expect(fits, "too many tables or features in one call");
  return fits;
}

bool is_customized(ScorePolicy policy) { return policy == ScorePolicy::kCustomized; }

// Whether is(field) holds for one of the tables.
template <class Enum, class Predicate>
bool any_table(IntAttr tables, TableField field, Predicate const& is) {
  for (size_t row = 0; row < tables.size(); row += kNumTableFields) {
    if (is(static_cast<Enum>(tables[row + field]))) return true;
  }
  return false;
}

ffi::Error lookup_handler(Run context, Args operands, Rets results, IntAttr tables,
                          IntAttr features, FloatAttr initializers, FloatAttr state_initial) {
  BufferReader reader("lookup", operands, results);
  LookupArgs args;
  if (!set_counts(reader, args, tables, features)) return reader.finish();
  args.given_scores = any_table<ScorePolicy>(tables, kTablePolicy, is_customized)
                          ? data<uint32_t>(reader.next_arg("scores"))
                          : nullptr;
  read_tables(reader, {tables, initializers, state_initial}, {true, true, true}, true,
              args.num_tables, args.tables);
  RowArrays arrays(reader);
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto& feature = args.features[f] = describe_feature(features, f);
    set_ids(reader, feature);
    set_bags(reader, features, f, feature);
    if (feature.pooling != Pooling::kNoRows) {
      auto const* const fields = rows_fields(features, f);
      auto const dim = args.tables[feature.table].dim;
      set_rows(reader, arrays.result(fields, "rows"), fields, dim, feature);
    }
    feature.slots = data<int32_t>(reader.next_ret("slots"));
    if (feature.pooling == Pooling::kMean) feature.scale = data<float>(reader.next_ret("scale"));
  }
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::lookup(context, args, scratch);
}

ffi::Error find_handler(Run context, Args operands, Rets results, IntAttr tables, IntAttr features,
                        FloatAttr initializers, FloatAttr state_initial) {
  BufferReader reader("find", operands, results);
  FindArgs args;
  if (!set_counts(reader, args, tables, features)) return reader.finish();
  args.given_scores = nullptr;
  auto const seeded = any_table<InitializerKind>(tables, kTableEvalInitializer, is_seeded);
  read_tables(reader, {tables, initializers, state_initial}, {true, false, seeded}, false,
              args.num_tables, args.tables);
  RowArrays arrays(reader);
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto& feature = args.features[f] = describe_feature(features, f);
    set_ids(reader, feature);
    set_bags(reader, features, f, feature);
    auto const* const fields = rows_fields(features, f);
    auto const dim = args.tables[feature.table].dim;
    set_rows(reader, arrays.result(fields, "rows"), fields, dim, feature);
    feature.slots = data<int32_t>(reader.next_ret("slots"));
  }
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::find(context, args, scratch);
}

// The gradients of all features and where they belong. The tables are there already.
template <class OpArgs>
void read_gradients(BufferReader& reader, IntAttr features, bool with_ids, OpArgs& args) {
  RowArrays arrays(reader);
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto& feature = args.features[f] = describe_feature(features, f);
    if (with_ids) set_ids(reader, feature);
    auto const slots = reader.next_arg("slots");
    feature.slots = data<int32_t>(slots);
    if (!with_ids) feature.num_ids = static_cast<int64_t>(slots.element_count());
    auto const* const fields = rows_fields(features, f);
    auto const gradients = arrays.operand(fields, "gradients");
    set_bags(reader, features, f, feature);
    set_rows(reader, gradients, fields, args.tables[feature.table].dim, feature);
    if (feature.pooling == Pooling::kMean) feature.scale = data<float>(reader.next_arg("scale"));
  }
}

ffi::Error update_handler(Run context, Args operands, Rets results, IntAttr tables,
                          IntAttr features, FloatAttr initializers, FloatAttr state_initial) {
  BufferReader reader("update", operands, results);
  UpdateArgs args;
  if (!set_counts(reader, args, tables, features)) return reader.finish();
  args.hyper = data<float>(reader.next_arg("hyper-parameters"));
  read_tables(reader, {tables, initializers, state_initial}, {true, true, true}, true,
              args.num_tables, args.tables);
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const kind = tables[size_t(t * kNumTableFields + kTableOptimizer)];
    args.optimizers[t] = static_cast<OptimizerKind>(kind);
    reader.expect(num_states(args.optimizers[t]) == args.tables[t].num_states,
                  "the optimizer does not have the table's states");
  }
  read_gradients(reader, features, true, args);
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::update(context, args, scratch);
}

ffi::Error reduce_handler(Run context, Args operands, Rets results, IntAttr tables,
                          IntAttr features, FloatAttr initializers, FloatAttr state_initial,
                          int64_t counts_step) {
  BufferReader reader("reduce", operands, results);
  ReduceArgs args;
  if (!set_counts(reader, args, tables, features)) return reader.finish();
  args.counts_step = static_cast<int32_t>(counts_step);
  read_tables(reader, {tables, initializers, state_initial}, {false, false, true}, true,
              args.num_tables, args.tables);
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const slots = reader.next_ret("unique slots");
    auto const gradients = reader.next_ret("row gradients");
    auto const count = static_cast<int64_t>(slots.element_count());
    args.sums[t] = {data<int32_t>(slots), gradients.untyped_data(), ValueType::kFloat32, {}, count};
    auto const dims = gradients.dimensions();
    args.tables[t].dim = dims.size() == 2 ? static_cast<int32_t>(dims[1]) : 0;
  }
  read_gradients(reader, features, true, args);
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::reduce(context, args, scratch);
}

// A reduction without a table: slots are the numbers of groups, and the sum of a group has a place
// of its own.
ffi::Error sum_rows_handler(Run context, Args operands, Rets results, IntAttr tables,
                            IntAttr features, FloatAttr /*initializers*/,
                            FloatAttr /*state_initial*/, IntAttr sums) {
  BufferReader reader("sum_rows", operands, results);
  ReduceArgs args;
  if (!set_counts(reader, args, tables, features)) return reader.finish();
  args.counts_step = 0;
  RowArrays arrays(reader);
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const* const fields = sums.begin() + t * kNumSumsFields;
    auto const groups = fields[kSumsGroups];
    auto& table = args.tables[t] = TableRef{};
    table.dim = static_cast<int32_t>(fields[kSumsDim]);
    table.local_buckets = tables[size_t(t * kNumTableFields + kTableNumBuckets)];
    reader.expect(groups <= table.local_buckets * kBucketCapacity, "more groups than slots");
    auto const array = arrays.result(fields + kSumsRows, "sums");
    auto const rows = view_rows(reader, array, fields + kSumsRows, groups, table.dim);
    args.sums[t] = {nullptr, rows.data, rows.type, rows.places, groups};
  }
  read_gradients(reader, features, false, args);
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::reduce(context, args, scratch);
}

void read_slots(BufferReader& reader, RowsArgs& args) {
  auto const slots = reader.next_arg("slots");
  args.slots = data<int32_t>(slots);
  args.num_slots = static_cast<int64_t>(slots.element_count());
}

ffi::Error gather_handler(Run context, Args operands, Rets results, IntAttr tables,
                          FloatAttr initializers, FloatAttr state_initial) {
  BufferReader reader("gather", operands, results);
  RowsArgs args{};
  read_tables(reader, {tables, initializers, state_initial}, {true, true, false}, true, 1,
              &args.table);
  read_slots(reader, args);
  args.values = data<float>(reader.next_ret("values"));
  for (int s = 0; s < args.table.num_states; ++s) {
    args.states[s] = data<float>(reader.next_ret("optimizer state"));
  }
  args.scores = data<uint64_t>(reader.next_ret("scores"));
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::gather(context, args, scratch);
}

// `parts` has a bit for each of values, scores and the states, in this order.
ffi::Error scatter_handler(Run context, Args operands, Rets results, IntAttr tables,
                           FloatAttr initializers, FloatAttr state_initial, int64_t parts,
                           int64_t last_wins) {
  BufferReader reader("scatter", operands, results);
  RowsArgs args{};
  args.last_wins = static_cast<int32_t>(last_wins);
  read_tables(reader, {tables, initializers, state_initial}, {true, true, false}, true, 1,
              &args.table);
  read_slots(reader, args);
  if ((parts & 1) != 0) args.values = data<float>(reader.next_arg("values"));
  if ((parts & 2) != 0) args.scores = data<uint64_t>(reader.next_arg("scores"));
  for (int s = 0; s < args.table.num_states; ++s) {
    if ((parts >> (2 + s) & 1) != 0) args.states[s] = data<float>(reader.next_arg("state"));
  }
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::scatter(context, args, scratch);
}

ffi::Error erase_handler(Run context, Args operands, Rets results, IntAttr tables,
                         FloatAttr initializers, FloatAttr state_initial) {
  BufferReader reader("erase", operands, results);
  EraseArgs args{};
  read_tables(reader, {tables, initializers, state_initial}, {false, false, true}, true, 1,
              &args.table);
  FeatureRef ids{};
  set_ids(reader, ids);
  args.ids = ids.ids;
  args.id_type = ids.id_type;
  args.num_ids = ids.num_ids;
  args.slots = data<int32_t>(reader.next_ret("slots"));
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::erase(context, args, scratch);
}

ffi::Error export_handler(Run context, Args operands, Rets results, IntAttr tables,
                          FloatAttr initializers, FloatAttr state_initial) {
  BufferReader reader("export_batch", operands, results);
  ExportArgs args{};
  read_tables(reader, {tables, initializers, state_initial}, {false, false, false}, false, 1,
              &args.table);
  args.first_bucket = data<int32_t>(reader.next_arg("first bucket"));
  args.min_score = data<uint64_t>(reader.next_arg("minimum score"));
  args.keys = data<uint64_t>(reader.next_ret("keys"));
  args.scores = data<uint64_t>(reader.next_ret("scores"));
  auto const slots = reader.next_ret("slots");
  args.slots = data<int32_t>(slots);
  args.num_buckets = static_cast<int64_t>(slots.element_count()) / kBucketCapacity;
  args.count = data<int32_t>(reader.next_ret("count"));
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::export_batch(context, args, scratch);
}

// Parts without ids own nothing, but are there.
std::vector<RoutePart> read_parts(BufferReader& reader, IntAttr attr, RouteArgs const& args) {
  std::vector<RoutePart> parts;
  int64_t total = 0, segment = 0;
  auto in_order = true;
  for (int32_t p = 0; p < count_rows(attr, kNumPartFields); ++p) {
    auto const* const fields = attr.begin() + p * kNumPartFields;
    auto const first = fields[kPartFirst], owners = fields[kPartOwners];
    in_order &= fields[kPartSize] >= 0 && first >= segment && owners > 0;
    segment = first + owners;
    in_order &= segment <= args.num_segments;
    total += fields[kPartSize];
    parts.push_back({fields[kPartSize], static_cast<int32_t>(first), static_cast<int32_t>(owners)});
  }
  reader.expect(in_order, "the parts' segments must follow each other");
  reader.expect(total == args.num_ids, "the parts must have as many ids as there are");
  return parts;
}

ffi::Error route_handler(Run context, Args operands, Rets results, IntAttr attr) {
  BufferReader reader("route", operands, results);
  FeatureRef ids{};
  set_ids(reader, ids);
  reader.expect(ids.id_type == IdType::k64, "ids must be uint32[n, 2]");
  auto const unique_of = reader.next_ret("unique_of");
  auto const first = reader.next_ret("first");
  auto const starts = reader.next_ret("starts");
  RouteArgs args{ids.num_ids,
                 static_cast<Key const*>(ids.ids),
                 nullptr,
                 count_rows(attr, kNumPartFields),
                 static_cast<int32_t>(starts.element_count()) - 1,
                 data<int32_t>(unique_of),
                 data<int32_t>(first),
                 data<int32_t>(starts)};
  auto const parts = read_parts(reader, attr, args);
  args.parts = parts.data();
  reader.expect(args.num_ids < int64_t{1} << 30, "a device has at most 2^30 - 1 ids in a call");
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::route(context, args, scratch);
}

// The attributes of a call about tables and features, and of a call about one table.
auto bind_features() {
  return ffi::Ffi::Bind()
      .Ctx<Run>()
      .RemainingArgs()
      .RemainingRets()
      .Attr<IntAttr>("tables")
      .Attr<IntAttr>("features")
      .Attr<FloatAttr>("initializers")
      .Attr<FloatAttr>("state_initial");
}

auto bind_table() {
  return ffi::Ffi::Bind()
      .Ctx<Run>()
      .RemainingArgs()
      .RemainingRets()
      .Attr<IntAttr>("tables")
      .Attr<FloatAttr>("initializers")
      .Attr<FloatAttr>("state_initial");
}

XLA_FFI_DEFINE_HANDLER(kLookup, lookup_handler, bind_features(), backend::kTraits);
XLA_FFI_DEFINE_HANDLER(kFind, find_handler, bind_features(), backend::kTraits);
XLA_FFI_DEFINE_HANDLER(kUpdate, update_handler, bind_features(), backend::kTraits);
XLA_FFI_DEFINE_HANDLER(kReduce, reduce_handler, bind_features().Attr<int64_t>("counts_step"),
                       backend::kTraits);
XLA_FFI_DEFINE_HANDLER(kSumRows, sum_rows_handler, bind_features().Attr<IntAttr>("sums"),
                       backend::kTraits);
XLA_FFI_DEFINE_HANDLER(kGather, gather_handler, bind_table(), backend::kTraits);
XLA_FFI_DEFINE_HANDLER(kScatter, scatter_handler,
                       bind_table().Attr<int64_t>("parts").Attr<int64_t>("last_wins"),
                       backend::kTraits);
XLA_FFI_DEFINE_HANDLER(kErase, erase_handler, bind_table(), backend::kTraits);
XLA_FFI_DEFINE_HANDLER(kExportBatch, export_handler, bind_table(), backend::kTraits);
XLA_FFI_DEFINE_HANDLER(
    kRoute, route_handler,
    ffi::Ffi::Bind().Ctx<Run>().RemainingArgs().RemainingRets().Attr<IntAttr>("parts"),
    backend::kTraits);

}  // namespace

namespace {

// Only what a size depends on.
template <class OpArgs>
OpArgs const& sized(OpArgs& args, CallShape const& shape) {
  args.num_tables = static_cast<int32_t>(shape.buckets.size());
  args.num_features = static_cast<int32_t>(shape.ids.size());
  for (size_t t = 0; t < shape.buckets.size(); ++t) {
    args.tables[t].local_buckets = shape.buckets[t];
    args.tables[t].dim = shape.dims[t];
  }
  for (size_t f = 0; f < shape.ids.size(); ++f) args.features[f].num_ids = shape.ids[f];
  return args;
}

size_t route_scratch_bytes(CallShape const& shape) {
  RouteArgs args{};
  std::vector<RoutePart> parts;
  for (auto const size : shape.ids) parts.push_back({size, 0, 1});
  for (auto const size : shape.ids) args.num_ids += size;
  args.parts = parts.data();
  args.num_parts = static_cast<int32_t>(parts.size());
  return backend::route_scratch_bytes(args);
}

}  // namespace

size_t scratch_bytes(std::string const& op, CallShape const& shape) {
  if (op == "route") return route_scratch_bytes(shape);
  if (shape.buckets.size() > kMaxTables || shape.ids.size() > kMaxFeatures) return 0;
  if (op == "lookup") {
    return backend::lookup_scratch_bytes(sized(*std::make_unique<LookupArgs>(), shape));
  }
  if (op == "update") {
    return backend::update_scratch_bytes(sized(*std::make_unique<UpdateArgs>(), shape));
  }
  if (op == "reduce" || op == "sum_rows") {
    return backend::reduce_scratch_bytes(sized(*std::make_unique<ReduceArgs>(), shape));
  }
  if (op == "scatter") {
    RowsArgs args{};
    args.last_wins = 1;  // else it needs none, and nobody asks
    args.num_slots = shape.ids.at(0);
    return backend::scatter_scratch_bytes(args);
  }
  if (op == "export_batch") {
    ExportArgs args{};
    args.num_buckets = shape.buckets.at(0);
    return backend::export_batch_scratch_bytes(args);
  }
  return 0;
}

std::vector<Registration> registrations() {
  return {{"dynemb_lookup", kLookup},
          {"dynemb_find", kFind},
          {"dynemb_update", kUpdate},
          {"dynemb_reduce", kReduce},
          {"dynemb_sum_rows", kSumRows},
          {"dynemb_gather", kGather},
          {"dynemb_scatter", kScatter},
          {"dynemb_erase", kErase},
          {"dynemb_export_batch", kExportBatch},
          {"dynemb_route", kRoute}};
}

}  // namespace dynemb
