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

IdType id_type_of(BufferReader& reader, ffi::AnyBuffer const& ids) {
  switch (ids.element_type()) {
    case ffi::DataType::S64:
    case ffi::DataType::U64:
      return IdType::k64;
    case ffi::DataType::S32:
      return IdType::kInt32;
    case ffi::DataType::U32:
      return IdType::kUInt32;
    default:
      reader.expect(false, "ids must be int32, uint32, int64 or uint64");
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

ffi::AnyBuffer BufferReader::next_arg(char const* name) {
  auto buffer = args_.get<ffi::AnyBuffer>(next_arg_++);
  if (buffer.has_value()) return *buffer;
  expect(false, std::string("operand '") + name + "' is missing");
  return ffi::AnyBuffer(&kNoBuffer);
}

ffi::AnyBuffer BufferReader::next_ret(char const* name) {
  auto buffer = rets_.get<ffi::AnyBuffer>(next_ret_++);
  if (buffer.has_value()) return **buffer;
  expect(false, std::string("result '") + name + "' is missing");
  return ffi::AnyBuffer(&kNoBuffer);
}

ffi::AnyBuffer BufferReader::next_aliased(char const* name) {
  auto const in = next_arg(name);
  auto const out = next_ret(name);
  expect(in.untyped_data() == out.untyped_data(),
         std::string("table array '") + name +
             "' must be updated in place: pass it in input_output_aliases");
  return in;
}

void BufferReader::expect(bool condition, std::string const& message) {
  if (!condition && message_.empty()) message_ = std::string(op_) + ": " + message;
}

ffi::Error BufferReader::finish() {
  expect(next_arg_ == args_.size(), "too many operands");
  expect(next_ret_ == rets_.size(), "too many results");
  return failed() ? ffi::Error::InvalidArgument(message_) : ffi::Error::Success();
}

ValueType value_type_of(BufferReader& reader, ffi::AnyBuffer const& buffer) {
  switch (buffer.element_type()) {
    case ffi::DataType::F32:
      return ValueType::kFloat32;
    case ffi::DataType::BF16:
      return ValueType::kBFloat16;
    case ffi::DataType::F16:
      return ValueType::kFloat16;
    default:
      reader.expect(false, "rows must be float32, bfloat16 or float16");
      return ValueType::kFloat32;
  }
}

namespace {

// Arrays of a call, as if one table filled them.
TableRef read_arrays(BufferReader& reader, int64_t num_states, TableParts parts, bool aliased) {
  auto const next = [&](char const* name) {
    return aliased ? reader.next_aliased(name) : reader.next_arg(name);
  };
  TableRef arrays{};
  auto const index = next("index");
  arrays.index = static_cast<uint8_t*>(index.untyped_data());
  arrays.local_buckets = dimension(index, 0);
  reader.expect(dimension(index, 1) * 4 == kBucketBytes, "index must be uint32[buckets, 544]");
  if (parts.values) {
    auto const values = next("values");
    arrays.values = values.untyped_data();
    arrays.dim = static_cast<int32_t>(dimension(values, 1));
    arrays.value_type = value_type_of(reader, values);
    reader.expect(dimension(values, 0) == arrays.local_buckets * kBucketCapacity,
                  "values must have 128 rows for each bucket of the index");
  }
  if (parts.states) {
    arrays.num_states = static_cast<int32_t>(num_states);
    reader.expect(arrays.num_states <= kMaxStates, "a table has at most 4 optimizer states");
    for (int s = 0; s < arrays.num_states && s < kMaxStates; ++s) {
      auto const state = next("optimizer state");
      reader.expect(state.element_type() == ffi::DataType::F32, "states must be float32");
      arrays.states[s] = static_cast<float*>(state.untyped_data());
      arrays.state_width[s] =
          state.dimensions().size() > 1 ? static_cast<int32_t>(dimension(state, 1)) : 1;
    }
  }
  if (parts.counters) {
    auto const counters = next("counters");
    arrays.counter_rows = static_cast<int32_t>(dimension(counters, 0));
    reader.expect(dimension(counters, 1) == kNumCounters && dimension(counters, 2) == 2,
                  "counters must be uint32[rows, 13, 2]");
    arrays.counters = static_cast<uint64_t*>(counters.untyped_data());
  }
  return arrays;
}

// The table's part of its arrays.
void move_to_table(BufferReader& reader, TableRef& table, int64_t const* fields) {
  auto const bucket = fields[kTableFirstBucket], buckets = fields[kTableLocalBuckets];
  auto const row = fields[kTableFirstRow], rows = fields[kTableCounterRows];
  reader.expect(bucket >= 0 && buckets > 0 && bucket + buckets <= table.local_buckets &&
                    fields[kTableNumBuckets] % buckets == 0,
                "a shard must hold an equal part of the table's buckets");
  reader.expect(
      table.counters == nullptr || (row >= 0 && rows > 0 && row + rows <= table.counter_rows),
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
    auto const* const fields = attrs.tables.begin() + t * kNumTableFields;
    auto const shares = t > 0 && fields[kTableShares] != 0;
    if (!shares) arrays = read_arrays(reader, fields[kTableNumStates], parts, aliased);
    auto& table = tables[t] = arrays;
    move_to_table(reader, table, fields);
    table.policy = static_cast<ScorePolicy>(fields[kTablePolicy]);
    table.evicts = static_cast<int32_t>(fields[kTableEvicts]);
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

void set_ids(BufferReader& reader, FeatureRef& feature) {
  auto const ids = reader.next_arg("ids");
  feature.ids = ids.untyped_data();
  feature.num_ids = dimension(ids, 0);
  // uint32[n, 2] are pairs of words, low and high: 64-bit ids.
  auto const pairs = ids.dimensions().size() == 2;
  reader.expect(!pairs || (ids.element_type() == ffi::DataType::U32 && dimension(ids, 1) == 2),
                "ids must be [n], or uint32[n, 2]");
  feature.id_type = pairs ? IdType::k64 : id_type_of(reader, ids);
}

void set_bags(BufferReader& reader, IntAttr features, int32_t f, FeatureRef& feature) {
  if (feature.bag_size == 0) {
    auto const offsets = reader.next_arg("offsets");
    reader.expect(offsets.element_type() == ffi::DataType::S32 && dimension(offsets, 0) > 0,
                  "offsets must be int32[bags + 1]");
    feature.offsets = static_cast<int32_t const*>(offsets.untyped_data());
    feature.num_bags = dimension(offsets, 0) - 1;
  } else {
    feature.num_bags = feature.num_ids / feature.bag_size;
    reader.expect(feature.num_bags * feature.bag_size == feature.num_ids,
                  "bags do not match the number of ids");
  }
  if (features[size_t(f * kNumFeatureFields + kFeatureHasWeights)] != 0) {
    auto const weights = reader.next_arg("weights");
    reader.expect(weights.element_type() == ffi::DataType::F32, "weights must be float32");
    reader.expect(static_cast<int64_t>(weights.element_count()) == feature.num_ids,
                  "weights must have one value for each id");
    feature.weights = static_cast<float const*>(weights.untyped_data());
  }
}

template <class Next>
ffi::AnyBuffer RowArrays::shared(int64_t number, Next const& next) {
  if (number < 0) return next();
  auto const place = static_cast<size_t>(number);
  reader_.expect(place <= shared_.size(), "shared arrays must be numbered in order of use");
  if (place >= shared_.size()) shared_.push_back(next());
  return shared_[std::min(place, shared_.size() - 1)];
}

ffi::AnyBuffer RowArrays::operand(int64_t const* fields, char const* name) {
  return shared(fields[kRowsArray], [&] { return reader_.next_arg(name); });
}

ffi::AnyBuffer RowArrays::result(int64_t const* fields, char const* name) {
  return shared(fields[kRowsArray], [&] {
    return fields[kRowsPassedOn] != 0 ? reader_.next_aliased(name) : reader_.next_ret(name);
  });
}

RowsView view_rows(BufferReader& reader, ffi::AnyBuffer const& array, int64_t const* fields,
                   int64_t num_rows, int32_t dim) {
  auto const type = value_type_of(reader, array);
  auto* const data = static_cast<char*>(array.untyped_data());
  if (fields[kRowsArray] < 0) {
    auto const dims = array.dimensions();
    reader.expect(dims.size() == 2 && dims[0] == num_rows && dims[1] == dim,
                  "rows must be [bags, dim]");
    return {data, type, {0, 0}};
  }
  auto const bytes = type == ValueType::kFloat32 ? 4 : 2;
  RowPlaces const places{fields[kRowsGroup], fields[kRowsStride]};
  reader.expect(places.stride * bytes % 16 == 0, "a stride must be a multiple of 16 bytes");
  auto const last = fields[kRowsOffset] + row_offset(places, num_rows - 1, dim) + dim;
  reader.expect(num_rows == 0 || last <= static_cast<int64_t>(array.element_count()),
                "rows lie outside of their array");
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
