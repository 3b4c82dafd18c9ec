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

constexpr int64_t kMostIds = (int64_t{1} << 31) - 1;

template <class T>
T* data(ffi::AnyBuffer const& buffer) {
  return static_cast<T*>(buffer.untyped_data());
}

// The last result of every call, empty where an operation needs none; and the last operand, which
// says nothing (jax_dynemb/ops/_call.py).
backend::Scratch read_scratch(BufferReader& reader) {
  reader.next_arg(BufferRule::kWork);
  auto const scratch = reader.next_ret(BufferRule::kScratch);
  return {scratch.untyped_data(), scratch.size_bytes()};
}

// Checks the attributes and counts tables and features into the struct; false after a mistake. The
// struct has 30 kB, of which most calls use little: nothing else of it is set before it is known,
// every field by its handler.
template <class OpArgs>
bool set_counts(BufferReader& reader, OpArgs& args, TableAttrs const& attrs, IntAttr features) {
  if (!check_tables(reader, attrs) || !reader.records(RecordRule::kFeatures, features)) {
    return false;
  }
  args.num_tables = count_rows(attrs.tables, kNumTableFields);
  args.num_features = count_rows(features, kNumFeatureFields);
  reader.sizes().set(kNumTables, args.num_tables);
  return reader.expect(args.num_tables <= kMaxTables && args.num_features <= kMaxFeatures,
                       "too many tables or features in one call");
}

// The same of a call about one table.
bool is_one_table(BufferReader& reader, TableAttrs const& attrs) {
  return check_tables(reader, attrs) &&
         reader.expect(attrs.tables.size() == kNumTableFields, "the call is about one table");
}

// What the attributes say of feature `f`, so that its buffers can be read. False where it is of no
// table.
template <class OpArgs>
bool begin_feature(BufferReader& reader, IntAttr features, int32_t f, OpArgs& args) {
  auto& feature = args.features[f] = describe_feature(features, f);
  if (!reader.expect(feature.table < args.num_tables, "a feature must be of one of the tables")) {
    return false;
  }
  auto const pools = feature.pooling == Pooling::kSum || feature.pooling == Pooling::kMean;
  reader.expect(pools || feature.bag_size == 1, "ids that are not pooled are bags of one");
  reader.at("feature ", f);
  auto& sizes = reader.sizes();
  sizes.forget(kNumIds, kNumBags, kNumOffsets);
  sizes.set(kDim, args.tables[feature.table].dim);
  return true;
}

// Positions are counted in 32 bits, two of which are flags on a GPU.
template <class OpArgs>
void check_ids(BufferReader& reader, OpArgs const& args) {
  int64_t total = 0;
  for (int32_t f = 0; f < args.num_features; ++f) total += args.features[f].num_ids;
  reader.expect(total < int64_t{1} << 30, "a call has at most 2^30 - 1 ids");
}

// One for each table; null if the slots were found in the very state of the call.
Stamp const* stamps_of_lookup(BufferReader& reader, int64_t stamped) {
  return stamped == 0 ? nullptr : data<Stamp>(reader.next_arg(BufferRule::kStamps));
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

// What the ids of all features are looked up for. The tables are there already.
template <class AddResults>
void read_lookups(BufferReader& reader, IntAttr features, LookupArgs& args,
                  AddResults const& add_results) {
  RowArrays arrays(reader);
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto& feature = args.features[f];
    if (!begin_feature(reader, features, f, args)) return;
    set_ids(reader, BufferRule::kIds, feature);
    count_bags(reader, feature);
    set_bags(reader, features, f, feature);
    if (feature.pooling != Pooling::kNoRows) {
      auto const* const fields = rows_fields(features, f);
      auto const dim = args.tables[feature.table].dim;
      set_rows(reader, arrays.result(fields), fields, dim, feature);
    }
    feature.slots = data<int32_t>(reader.next_ret(BufferRule::kSlots));
    add_results(feature);
  }
  check_ids(reader, args);
}

ffi::Error lookup_handler(Run context, Args operands, Rets results, IntAttr tables,
                          IntAttr features, FloatAttr initializers, FloatAttr state_initial) {
  BufferReader reader("lookup", operands, results);
  TableAttrs const attrs{tables, initializers, state_initial};
  LookupArgs args;
  if (!set_counts(reader, args, attrs, features)) return reader.finish();
  args.given_scores = any_table<ScorePolicy>(tables, kTablePolicy, is_customized)
                          ? data<uint32_t>(reader.next_arg(BufferRule::kGivenScores))
                          : nullptr;
  args.stamps = data<Stamp>(reader.next_ret(BufferRule::kStamps));
  read_tables(reader, attrs, {true, true, true}, true, args.num_tables, args.tables);
  read_lookups(reader, features, args, [&](FeatureRef& feature) {
    if (feature.pooling != Pooling::kMean) return;
    feature.scale = data<float>(reader.next_ret(BufferRule::kScale));
  });
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::lookup(context, args, scratch);
}

ffi::Error find_handler(Run context, Args operands, Rets results, IntAttr tables, IntAttr features,
                        FloatAttr initializers, FloatAttr state_initial) {
  BufferReader reader("find", operands, results);
  TableAttrs const attrs{tables, initializers, state_initial};
  FindArgs args;
  if (!set_counts(reader, args, attrs, features)) return reader.finish();
  args.given_scores = nullptr;
  args.stamps = nullptr;
  auto const seeded = any_table<InitializerKind>(tables, kTableEvalInitializer, is_seeded);
  read_tables(reader, attrs, {true, false, seeded}, false, args.num_tables, args.tables);
  read_lookups(reader, features, args, [](FeatureRef&) {});
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::find(context, args, scratch);
}

// The gradients of all features and where they belong. The tables are there already.
template <class OpArgs>
void read_gradients(BufferReader& reader, IntAttr features, bool with_ids, OpArgs& args) {
  RowArrays arrays(reader);
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto& feature = args.features[f];
    if (!begin_feature(reader, features, f, args)) return;
    if (with_ids) set_ids(reader, BufferRule::kIds, feature);
    auto const slots = reader.next_arg(BufferRule::kSlots);
    feature.slots = data<int32_t>(slots);
    feature.num_ids = static_cast<int64_t>(slots.element_count());
    count_bags(reader, feature);
    auto const* const fields = rows_fields(features, f);
    auto const gradients = arrays.operand(fields);
    set_bags(reader, features, f, feature);
    set_rows(reader, gradients, fields, args.tables[feature.table].dim, feature);
    if (feature.pooling == Pooling::kMean) {
      feature.scale = data<float>(reader.next_arg(BufferRule::kScale));
    }
  }
  check_ids(reader, args);
}

// Has the table the states that its optimizer reads and writes, each as wide as that takes them?
void check_optimizer(BufferReader& reader, OptimizerKind kind, TableRef const& table) {
  auto fits = num_states(kind) == table.num_states;
  for (int s = 0; s < table.num_states; ++s) {
    fits = fits && table.state_width[s] == (is_rowwise(kind) ? 1 : table.dim);
  }
  reader.expect(fits, "the optimizer does not have the table's states");
}

ffi::Error update_handler(Run context, Args operands, Rets results, IntAttr tables,
                          IntAttr features, FloatAttr initializers, FloatAttr state_initial,
                          int64_t stamped) {
  BufferReader reader("update", operands, results);
  TableAttrs const attrs{tables, initializers, state_initial};
  UpdateArgs args;
  if (!set_counts(reader, args, attrs, features)) return reader.finish();
  args.hyper = data<float>(reader.next_arg(BufferRule::kHyper));
  args.stamps = stamps_of_lookup(reader, stamped);
  read_tables(reader, attrs, {true, true, true}, true, args.num_tables, args.tables);
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const kind = tables[size_t(t * kNumTableFields + kTableOptimizer)];
    args.optimizers[t] = static_cast<OptimizerKind>(kind);
    check_optimizer(reader, args.optimizers[t], args.tables[t]);
  }
  read_gradients(reader, features, true, args);
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::update(context, args, scratch);
}

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

ffi::Error reduce_handler(Run context, Args operands, Rets results, IntAttr tables,
                          IntAttr features, FloatAttr initializers, FloatAttr state_initial,
                          int64_t stamped, int64_t counts_step) {
  BufferReader reader("reduce", operands, results);
  TableAttrs const attrs{tables, initializers, state_initial};
  ReduceArgs args;
  if (!set_counts(reader, args, attrs, features)) return reader.finish();
  args.counts_step = counts_step != 0 ? 1 : 0;
  args.stamps = stamps_of_lookup(reader, stamped);
  read_tables(reader, attrs, {false, false, true}, true, args.num_tables, args.tables);
  for (int32_t t = 0; t < args.num_tables; ++t) {
    reader.at("table ", t);
    reader.sizes().forget(kNumUnique, kDim);
    auto const slots = reader.next_ret(BufferRule::kUniqueSlots);
    auto const gradients = reader.next_ret(BufferRule::kRowGradients);
    auto const count = static_cast<int64_t>(slots.element_count());
    args.sums[t] = {data<int32_t>(slots), gradients.untyped_data(), ValueType::kFloat32, {}, count};
    auto const dims = gradients.dimensions();
    args.tables[t].dim = dims.size() == 2 ? static_cast<int32_t>(dims[1]) : 0;
  }
  read_gradients(reader, features, true, args);
  if (!reader.failed()) check_capacities(reader, args);
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::reduce(context, args, scratch);
}

// A reduction without a table: slots are the numbers of groups, and the sum of a group has a place
// of its own.
ffi::Error sum_rows_handler(Run context, Args operands, Rets results, IntAttr tables,
                            IntAttr features, FloatAttr initializers, FloatAttr state_initial,
                            IntAttr sums) {
  BufferReader reader("sum_rows", operands, results);
  ReduceArgs args;
  if (!set_counts(reader, args, {tables, initializers, state_initial}, features) ||
      !reader.records(RecordRule::kSums, sums) ||
      !reader.expect(count_rows(sums, kNumSumsFields) == args.num_tables,
                     "attribute 'sums' must have a record for each table")) {
    return reader.finish();
  }
  args.counts_step = 0;
  args.stamps = nullptr;
  RowArrays arrays(reader);
  for (int32_t t = 0; t < args.num_tables; ++t) {
    reader.at("table ", t);
    auto const* const fields = sums.begin() + t * kNumSumsFields;
    auto const groups = fields[kSumsGroups];
    auto& table = args.tables[t] = TableRef{};
    table.dim = static_cast<int32_t>(fields[kSumsDim]);
    table.local_buckets = tables[size_t(t * kNumTableFields + kTableLocalBuckets)];
    table.num_groups = static_cast<uint32_t>(groups);
    reader.expect(groups <= table.local_buckets * kBucketCapacity, "more groups than slots");
    reader.sizes().set(kNumBags, groups);
    reader.sizes().set(kDim, table.dim);
    auto const array = arrays.result(fields + kSumsRows);
    auto const rows = view_rows(reader, array, fields + kSumsRows, groups, table.dim);
    args.sums[t] = {nullptr, rows.data, rows.type, rows.places, groups};
  }
  read_gradients(reader, features, false, args);
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::reduce(context, args, scratch);
}

void read_slots(BufferReader& reader, RowsArgs& args) {
  auto const slots = reader.next_arg(BufferRule::kSlotsOfRows);
  args.slots = data<int32_t>(slots);
  args.num_slots = static_cast<int64_t>(slots.element_count());
  reader.sizes().set(kDim, args.table.dim);
}

BufferRule rule_of_state(TableRef const& table, int s) {
  return table.state_width[s] == 1 ? BufferRule::kRowNumber : BufferRule::kRowState;
}

ffi::Error gather_handler(Run context, Args operands, Rets results, IntAttr tables,
                          FloatAttr initializers, FloatAttr state_initial) {
  BufferReader reader("gather", operands, results);
  TableAttrs const attrs{tables, initializers, state_initial};
  RowsArgs args{};
  if (!is_one_table(reader, attrs)) return reader.finish();
  read_tables(reader, attrs, {true, true, false}, true, 1, &args.table);
  read_slots(reader, args);
  args.values = data<float>(reader.next_ret(BufferRule::kRowValues));
  for (int s = 0; s < args.table.num_states; ++s) {
    args.states[s] = data<float>(reader.next_ret(rule_of_state(args.table, s)));
  }
  args.scores = data<uint64_t>(reader.next_ret(BufferRule::kRowScores));
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::gather(context, args, scratch);
}

// `parts` has a bit for each of values, scores and the states, in this order.
ffi::Error scatter_handler(Run context, Args operands, Rets results, IntAttr tables,
                           FloatAttr initializers, FloatAttr state_initial, int64_t parts,
                           int64_t last_wins) {
  BufferReader reader("scatter", operands, results);
  TableAttrs const attrs{tables, initializers, state_initial};
  RowsArgs args{};
  if (!is_one_table(reader, attrs)) return reader.finish();
  args.last_wins = last_wins != 0 ? 1 : 0;
  read_tables(reader, attrs, {true, true, false}, true, 1, &args.table);
  read_slots(reader, args);
  if ((parts & 1) != 0) args.values = data<float>(reader.next_arg(BufferRule::kRowValues));
  if ((parts & 2) != 0) args.scores = data<uint64_t>(reader.next_arg(BufferRule::kRowScores));
  for (int s = 0; s < args.table.num_states; ++s) {
    if ((parts >> (2 + s) & 1) == 0) continue;
    args.states[s] = data<float>(reader.next_arg(rule_of_state(args.table, s)));
  }
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::scatter(context, args, scratch);
}

ffi::Error erase_handler(Run context, Args operands, Rets results, IntAttr tables,
                         FloatAttr initializers, FloatAttr state_initial) {
  BufferReader reader("erase", operands, results);
  TableAttrs const attrs{tables, initializers, state_initial};
  EraseArgs args{};
  if (!is_one_table(reader, attrs)) return reader.finish();
  read_tables(reader, attrs, {false, false, true}, true, 1, &args.table);
  FeatureRef ids{};
  set_ids(reader, BufferRule::kIds, ids);
  args.ids = ids.ids;
  args.id_type = ids.id_type;
  args.num_ids = ids.num_ids;
  args.slots = data<int32_t>(reader.next_ret(BufferRule::kSlots));
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::erase(context, args, scratch);
}

ffi::Error export_handler(Run context, Args operands, Rets results, IntAttr tables,
                          FloatAttr initializers, FloatAttr state_initial) {
  BufferReader reader("export_batch", operands, results);
  TableAttrs const attrs{tables, initializers, state_initial};
  ExportArgs args{};
  if (!is_one_table(reader, attrs)) return reader.finish();
  read_tables(reader, attrs, {false, false, false}, false, 1, &args.table);
  args.first_bucket = data<int32_t>(reader.next_arg(BufferRule::kFirstBucket));
  args.min_score = data<uint64_t>(reader.next_arg(BufferRule::kMinScore));
  args.keys = data<uint64_t>(reader.next_ret(BufferRule::kKeys));
  args.scores = data<uint64_t>(reader.next_ret(BufferRule::kScores));
  auto const slots = reader.next_ret(BufferRule::kExportedSlots);
  args.slots = data<int32_t>(slots);
  args.num_buckets = static_cast<int64_t>(slots.element_count()) / kBucketCapacity;
  reader.expect(args.num_buckets * kBucketCapacity == static_cast<int64_t>(slots.element_count()),
                "there must be room for the rows of whole buckets");
  args.count = data<int32_t>(reader.next_ret(BufferRule::kCount));
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::export_batch(context, args, scratch);
}

// Parts without ids own nothing, but are there.
std::vector<RoutePart> read_parts(BufferReader& reader, IntAttr attr, RouteArgs const& args) {
  std::vector<RoutePart> parts;
  int64_t total = 0, segment = 0;
  auto in_order = true;
  for (int32_t p = 0; p < args.num_parts; ++p) {
    auto const* const fields = attr.begin() + p * kNumPartFields;
    auto const first = fields[kPartFirst], owners = fields[kPartOwners];
    in_order &= first >= segment;
    segment = first + owners;
    in_order &= segment <= args.num_segments;
    total += fields[kPartSize];
    parts.push_back({fields[kPartSize], static_cast<int32_t>(first), static_cast<int32_t>(owners),
                     factors_of_seed(static_cast<uint64_t>(fields[kPartHashSeed]))});
  }
  reader.expect(in_order, "the parts' segments must follow each other");
  reader.expect(total == args.num_ids, "the parts must have as many ids as there are");
  return parts;
}

ffi::Error route_handler(Run context, Args operands, Rets results, IntAttr attr) {
  BufferReader reader("route", operands, results);
  if (!reader.records(RecordRule::kParts, attr)) return reader.finish();
  FeatureRef ids{};
  set_ids(reader, BufferRule::kPairs, ids);
  auto const unique_of = reader.next_ret(BufferRule::kUniqueOf);
  auto const first = reader.next_ret(BufferRule::kFirst);
  auto const starts = reader.next_ret(BufferRule::kStarts);
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

LengthType length_type_of(ffi::AnyBuffer const& lengths) {
  switch (lengths.element_type()) {
    case ffi::DataType::U32:
      return LengthType::kUInt32;
    case ffi::DataType::S64:
      return LengthType::kInt64;
    case ffi::DataType::U64:
      return LengthType::kUInt64;
    default:
      return LengthType::kInt32;
  }
}

ffi::Error offsets_handler(Run context, Args operands, Rets results, int64_t capacity) {
  BufferReader reader("offsets", operands, results);
  reader.expect(capacity >= 0 && capacity < kMostIds, "the capacity must be from 0 to 2^31 - 2");
  auto const lengths = reader.next_arg(BufferRule::kBagLengths);
  auto const num_bags = static_cast<int64_t>(lengths.element_count());
  reader.sizes().set(kNumOffsets, num_bags + 1);
  auto const offsets = reader.next_ret(BufferRule::kMadeOffsets);
  auto const malformed = reader.next_ret(BufferRule::kMalformed);
  OffsetsArgs const args{num_bags,
                         lengths.untyped_data(),
                         length_type_of(lengths),
                         static_cast<int32_t>(capacity),
                         data<int32_t>(offsets),
                         data<uint32_t>(malformed)};
  auto const scratch = read_scratch(reader);
  auto error = reader.finish();
  return error.failure() ? error : backend::offsets(context, args, scratch);
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
XLA_FFI_DEFINE_HANDLER(kUpdate, update_handler, bind_features().Attr<int64_t>("stamped"),
                       backend::kTraits);
XLA_FFI_DEFINE_HANDLER(kReduce, reduce_handler,
                       bind_features().Attr<int64_t>("stamped").Attr<int64_t>("counts_step"),
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

XLA_FFI_DEFINE_HANDLER(
    kOffsets, offsets_handler,
    ffi::Ffi::Bind().Ctx<Run>().RemainingArgs().RemainingRets().Attr<int64_t>("capacity"),
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
  for (auto const size : shape.ids) parts.push_back({size, 0, 1, plain_factors()});
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
          {"dynemb_route", kRoute},
          {"dynemb_offsets", kOffsets}};
}

}  // namespace dynemb
