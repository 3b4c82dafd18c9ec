// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/buffers.cc: XLA's buffers and attributes become the structs of core/args.h.
#include "xla_ffi/buffers.h"

#include <algorithm>

namespace dynemb {
namespace {

// Stands in for a buffer that could not be read.
XLA_FFI_Buffer const kNoBuffer = [] {
  XLA_FFI_Buffer buffer{};
  buffer.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
  buffer.dtype = XLA_FFI_DataType_U8;
  return buffer;
}();

int64_t dimension(ffi::AnyBuffer const& buffer, size_t axis) {
  auto const dims = buffer.dimensions();
  return axis < dims.size() ? dims[axis] : 0;
}

IdType id_type_of(ffi::AnyBuffer const& ids) {
  // uint32[n, 2] are pairs of words, low and high: 64-bit ids.
  if (ids.dimensions().size() == 2) return IdType::k64;
  switch (ids.element_type()) {
    case ffi::DataType::S32:
      return IdType::kInt32;
    case ffi::DataType::U32:
      return IdType::kUInt32;
    default:
      return IdType::k64;
  }
}

Initializer read_initializer(TableAttrs const& attrs, int32_t t, int which) {
  auto const kind = attrs.tables[size_t(t * kNumTableFields + kTableInitializer + which)];
  Initializer result{static_cast<InitializerKind>(kind), {}};
  for (int i = 0; i < kInitializerParameters; ++i) {
    result.parameter[i] = attrs.initializers[size_t((t * 2 + which) * kInitializerParameters + i)];
  }
  return result;
}

}  // namespace

bool BufferReader::keep(std::string const& mistake) {
  if (!failed() && !mistake.empty()) message_ = std::string(op_) + ": " + mistake;
  return !failed();
}

ffi::AnyBuffer BufferReader::checked(char const* kind, BufferRule rule,
                                     ffi::AnyBuffer const& buffer) {
  auto const mistake = sizes_.check(rule, buffer);
  if (!mistake.empty()) {
    auto const of = what_ == nullptr ? "" : std::string(" of ") + what_ + std::to_string(number_);
    keep(std::string(kind) + " '" + name_of(rule) + "'" + of + " " + mistake);
  }
  return buffer;
}

ffi::AnyBuffer BufferReader::missing(char const* kind, BufferRule rule) {
  keep(std::string(kind) + " '" + name_of(rule) + "' is missing");
  return ffi::AnyBuffer(&kNoBuffer);
}

ffi::AnyBuffer BufferReader::next_arg(BufferRule rule) {
  auto const buffer = args_.get<ffi::AnyBuffer>(next_arg_++);
  return buffer.has_value() ? checked("operand", rule, *buffer) : missing("operand", rule);
}

ffi::AnyBuffer BufferReader::next_ret(BufferRule rule) {
  auto buffer = rets_.get<ffi::AnyBuffer>(next_ret_++);
  return buffer.has_value() ? checked("result", rule, **buffer) : missing("result", rule);
}

ffi::AnyBuffer BufferReader::next_aliased(BufferRule rule) {
  auto const in = next_arg(rule);
  auto const out = next_ret(rule);
  if (in.untyped_data() != out.untyped_data()) {
    keep(std::string("array '") + name_of(rule) +
         "' must be updated in place: pass it in input_output_aliases");
  }
  return in;
}

ffi::Error BufferReader::finish() {
  expect(next_arg_ == args_.size(), "too many operands");
  expect(next_ret_ == rets_.size(), "too many results");
  return failed() ? ffi::Error::InvalidArgument(message_) : ffi::Error::Success();
}

ValueType value_type_of(ffi::AnyBuffer const& buffer) {
  switch (buffer.element_type()) {
    case ffi::DataType::BF16:
      return ValueType::kBFloat16;
    case ffi::DataType::F16:
      return ValueType::kFloat16;
    default:
      return ValueType::kFloat32;
  }
}

bool check_tables(BufferReader& reader, TableAttrs const& attrs) {
  if (!reader.records(RecordRule::kTables, attrs.tables)) return false;
  auto const count = attrs.tables.size() / kNumTableFields;
  reader.expect(attrs.initializers.size() == count * 2 * kInitializerParameters,
                "attribute 'initializers' must have 12 numbers for each table");
  return reader.expect(attrs.state_initial.size() == count * kMaxStates,
                       "attribute 'state_initial' must have 4 numbers for each table");
}

namespace {

// Arrays of a call, as if one table filled them.
TableRef read_arrays(BufferReader& reader, int64_t num_states, TableParts parts, bool aliased) {
  auto const next = [&](BufferRule rule) {
    return aliased ? reader.next_aliased(rule) : reader.next_arg(rule);
  };
  auto& sizes = reader.sizes();
  sizes.forget(kBuckets, kArraySlots, kDim, kCounterRows);
  TableRef arrays{};
  auto const index = next(BufferRule::kIndex);
  arrays.index = static_cast<uint8_t*>(index.untyped_data());
  arrays.local_buckets = dimension(index, 0);
  sizes.set(kArraySlots, arrays.local_buckets * kBucketCapacity);
  if (parts.values) {
    auto const values = next(BufferRule::kValues);
    arrays.values = values.untyped_data();
    arrays.dim = static_cast<int32_t>(dimension(values, 1));
    arrays.value_type = value_type_of(values);
  }
  if (parts.states) {
    arrays.num_states = static_cast<int32_t>(num_states);
    for (int s = 0; s < arrays.num_states; ++s) {
      auto const state = next(BufferRule::kState);
      arrays.states[s] = static_cast<float*>(state.untyped_data());
      arrays.state_width[s] =
          state.dimensions().size() > 1 ? static_cast<int32_t>(dimension(state, 1)) : 1;
    }
  }
  if (parts.counters) {
    auto const counters = next(BufferRule::kCounters);
    arrays.counter_rows = static_cast<int32_t>(dimension(counters, 0));
    arrays.counters = static_cast<uint64_t*>(counters.untyped_data());
  }
  return arrays;
}

// The table's part of its arrays.
void move_to_table(BufferReader& reader, TableRef& table, int64_t const* fields) {
  auto const bucket = fields[kTableFirstBucket], buckets = fields[kTableLocalBuckets];
  auto const row = fields[kTableFirstRow], rows = fields[kTableCounterRows];
  reader.expect(bucket + buckets <= table.local_buckets && fields[kTableNumBuckets] % buckets == 0,
                "a shard must hold an equal part of the table's buckets");
  reader.expect(table.counters == nullptr || (rows > 0 && row + rows <= table.counter_rows),
                "a table must have rows of counters");
  if (reader.failed()) return;
  auto const slot = bucket * kBucketCapacity;
  table.num_buckets = static_cast<uint64_t>(fields[kTableNumBuckets]);
  table.local_buckets = buckets;
  table.index += bucket * kBucketBytes;
  if (table.values != nullptr) {
    auto const bytes = table.value_type == ValueType::kFloat32 ? 4 : 2;
    table.values = static_cast<uint8_t*>(table.values) + slot * table.dim * bytes;
  }
  for (int s = 0; s < table.num_states; ++s) table.states[s] += slot * table.state_width[s];
  if (table.counters != nullptr) table.counters += row * kNumCounters;
  table.counter_rows = static_cast<int32_t>(rows);
}

}  // namespace

void read_tables(BufferReader& reader, TableAttrs const& attrs, TableParts parts, bool aliased,
                 int32_t count, TableRef* tables) {
  TableRef arrays{};
  for (int32_t t = 0; t < count; ++t) {
    reader.at("table ", t);
    auto const* const fields = attrs.tables.begin() + t * kNumTableFields;
    auto const shares = t > 0 && fields[kTableShares] != 0;
    if (!shares) arrays = read_arrays(reader, fields[kTableNumStates], parts, aliased);
    auto& table = tables[t] = arrays;
    move_to_table(reader, table, fields);
    table.policy = static_cast<ScorePolicy>(fields[kTablePolicy]);
    table.evicts = static_cast<int32_t>(fields[kTableEvicts]);
    table.skips_nonfinite = static_cast<int32_t>(fields[kTableSkipsNonfinite]);
    table.hash = factors_of_seed(static_cast<uint64_t>(fields[kTableHashSeed]));
    table.initializer = read_initializer(attrs, t, 0);
    table.eval_initializer = read_initializer(attrs, t, 1);
    for (int s = 0; s < kMaxStates; ++s) {
      table.state_initial[s] = attrs.state_initial[size_t(t * kMaxStates + s)];
    }
  }
}

FeatureRef describe_feature(IntAttr features, int32_t f) {
  auto const* const fields = features.begin() + f * kNumFeatureFields;
  FeatureRef feature{};
  feature.table = static_cast<int32_t>(fields[kFeatureTable]);
  feature.pooling = static_cast<Pooling>(fields[kFeaturePooling]);
  feature.bag_size = fields[kFeatureBagSize];
  return feature;
}

void set_ids(BufferReader& reader, BufferRule rule, FeatureRef& feature) {
  auto const ids = reader.next_arg(rule);
  feature.ids = ids.untyped_data();
  feature.num_ids = dimension(ids, 0);
  feature.id_type = id_type_of(ids);
}

void count_bags(BufferReader& reader, FeatureRef& feature) {
  if (feature.bag_size == 0) return;
  feature.num_bags = feature.num_ids / feature.bag_size;
  reader.expect(feature.num_bags * feature.bag_size == feature.num_ids,
                "bags do not match the number of ids");
  reader.sizes().set(kNumBags, feature.num_bags);
}

void set_bags(BufferReader& reader, IntAttr features, int32_t f, FeatureRef& feature) {
  if (feature.bag_size == 0) {
    // Gradients that stand before the offsets have said how many bags there are.
    auto& sizes = reader.sizes();
    if (sizes.knows(kNumBags)) sizes.set(kNumOffsets, sizes.get(kNumBags) + 1);
    auto const offsets = reader.next_arg(BufferRule::kOffsets);
    feature.offsets = static_cast<int32_t const*>(offsets.untyped_data());
    feature.num_bags = std::max<int64_t>(dimension(offsets, 0) - 1, 0);
    sizes.set(kNumBags, feature.num_bags);
  }
  if (features[size_t(f * kNumFeatureFields + kFeatureHasWeights)] != 0) {
    auto const weights = reader.next_arg(BufferRule::kWeights);
    feature.weights = static_cast<float const*>(weights.untyped_data());
  }
}

template <class Next>
ffi::AnyBuffer RowArrays::shared(int64_t number, Next const& next) {
  if (number < 0) return next();
  auto const place = static_cast<size_t>(number);
  reader_.expect(place <= shared_.size(), "shared arrays must be numbered in order of use");
  if (place >= shared_.size()) {
    reader_.sizes().forget(kElements);
    shared_.push_back(next());
  }
  return shared_[std::min(place, shared_.size() - 1)];
}

ffi::AnyBuffer RowArrays::operand(int64_t const* fields) {
  auto const rule = fields[kRowsArray] < 0 ? BufferRule::kGradients : BufferRule::kSharedGradients;
  return shared(fields[kRowsArray], [&] { return reader_.next_arg(rule); });
}

ffi::AnyBuffer RowArrays::result(int64_t const* fields) {
  auto const rule = fields[kRowsArray] < 0 ? BufferRule::kRows : BufferRule::kSharedRows;
  return shared(fields[kRowsArray], [&] {
    return fields[kRowsPassedOn] != 0 ? reader_.next_aliased(rule) : reader_.next_ret(rule);
  });
}

namespace {

// Do so many rows lie in an array of so many elements, none on another one?
bool lie_within(RowPlaces const& places, int64_t offset, int64_t num_rows, int32_t dim,
                int64_t elements) {
  if (num_rows == 0) return true;
  if (places.group == 0) return offset <= elements - num_rows * dim;
  auto const last_group = (num_rows - 1) / places.group;
  auto const in_last = num_rows - last_group * places.group;
  if (last_group > 0 && places.stride < places.group * dim) return false;
  auto const room = elements - offset - in_last * dim;
  return room >= 0 && (last_group == 0 || places.stride <= room / last_group);
}

}  // namespace

RowsView view_rows(BufferReader& reader, ffi::AnyBuffer const& array, int64_t const* fields,
                   int64_t num_rows, int32_t dim) {
  auto const type = value_type_of(array);
  auto* const data = static_cast<char*>(array.untyped_data());
  if (fields[kRowsArray] < 0) return {data, type, {0, 0}};
  auto const bytes = type == ValueType::kFloat32 ? 4 : 2;
  RowPlaces const places{fields[kRowsGroup], fields[kRowsStride]};
  auto const elements = static_cast<int64_t>(array.element_count());
  reader.expect(places.stride * bytes % 16 == 0, "a stride must be a multiple of 16 bytes");
  if (!reader.expect(lie_within(places, fields[kRowsOffset], num_rows, dim, elements),
                     "rows lie outside of their array, or on each other")) {
    return {data, type, places};
  }
  return {data + fields[kRowsOffset] * bytes, type, places};
}

void set_rows(BufferReader& reader, ffi::AnyBuffer const& array, int64_t const* fields, int32_t dim,
              FeatureRef& feature) {
  auto const rows = view_rows(reader, array, fields, feature.num_bags, dim);
  feature.rows = rows.data;
  feature.row_type = rows.type;
  feature.places = rows.places;
}

}  // namespace dynemb
