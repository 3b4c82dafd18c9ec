// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/tables.cc: the buffers and attributes of tables become TableRefs.
#include "xla_ffi/tables.h"

#include <algorithm>

#include "core/packed_row.h"
#include "core/row.h"
#include "xla_ffi/limits.h"

namespace dynemb {
namespace {

Initializer read_initializer(TableAttrs const& attrs, int32_t t, int which) {
  auto const kind = attrs.tables[size_t(t * kNumTableFields + kTableInitializer + which)];
  Initializer result{static_cast<InitializerKind>(kind), {}};
  for (int i = 0; i < kInitializerParameters; ++i) {
    result.parameter[i] = attrs.initializers[size_t((t * 2 + which) * kInitializerParameters + i)];
  }
  return result;
}

int64_t const* packed_fields(TableParts const& parts, int32_t t) {
  return parts.packed == nullptr ? nullptr : parts.packed->begin() + t * kNumPackedFields;
}

int32_t packed_bytes(int64_t const* packed) {
  return packed_row_bytes(static_cast<RowCode>(packed[kPackedCode]),
                          static_cast<int32_t>(packed[kPackedDim]));
}

// Reads rows in place of values.
void read_packed_values(BufferReader& reader, int64_t const* packed, TableRef& arrays) {
  reader.sizes().set(kRowBytes, packed_bytes(packed));
  arrays.values = reader.next_arg(BufferRule::kPackedValues).untyped_data();
  arrays.dim = static_cast<int32_t>(packed[kPackedDim]);
  arrays.value_type = static_cast<ValueType>(packed[kPackedValueType]);
}

ScorePolicy policy_of(int64_t const* fields) {
  return static_cast<ScorePolicy>(fields[kTablePolicy]);
}

// Arrays of a call, as if one table filled them.
TableRef read_arrays(BufferReader& reader, int64_t const* fields, TableParts const& parts,
                     int64_t const* packed, bool aliased, Admission* admission, Removals* removals,
                     Departures* departures) {
  auto const next = [&](BufferRule rule) {
    return aliased ? reader.next_aliased(rule) : reader.next_arg(rule);
  };
  auto& sizes = reader.sizes();
  sizes.forget(kBuckets, kArraySlots, kDim, kCounterRows, kSketchWords, kRingWords, kRingRows);
  TableRef arrays{};
  auto const part = fields[kTablePart];
  reader.expect((part != kIndexPart || parts.index_part) && (part != kRowsPart || parts.rows_part),
                "the call takes no such part of a tiered table");
  if (part != kRowsPart) {
    auto const index = next(BufferRule::kIndex);
    arrays.index = static_cast<uint8_t*>(index.untyped_data());
    arrays.local_buckets = dimension(index, 0);
    check_bucket(reader, index, fields);
    sizes.set(kArraySlots, arrays.local_buckets * kBucketCapacity);
  } else if (fields[kTableRounding] != 0) {
    auto const keys = next(BufferRule::kRowKeys);
    arrays.row_keys = static_cast<Key const*>(keys.untyped_data());
  }
  if (part == kIndexPart) {
    arrays.dim = 1;  // of no rows
  } else if (packed != nullptr) {
    read_packed_values(reader, packed, arrays);
  } else if (parts.values) {
    take_values(arrays, next(BufferRule::kValues));
  }
  if (parts.states) {
    arrays.num_states = static_cast<int32_t>(fields[kTableNumStates]);
    for (int s = 0; s < arrays.num_states; ++s) take_state(arrays, s, next(BufferRule::kState));
  }
  if (parts.counters) {
    auto const counters = next(BufferRule::kCounters);
    arrays.counter_rows = static_cast<int32_t>(dimension(counters, 0));
    arrays.counters = static_cast<uint64_t*>(counters.untyped_data());
  }
  if (admission != nullptr) *admission = {};
  if (admission != nullptr && fields[kTableSketchWords] > 0) {
    auto const sketch = next(BufferRule::kSketch);
    admission->sketch = data<uint32_t>(sketch);
    reader.expect(dimension(sketch, 1) == fields[kTableSketchWords],
                  "a sketch must have the words of a bucket that the attribute says");
  }
  if (removals != nullptr) *removals = {};
  if (removals != nullptr && fields[kTableRingSize] > 0) {
    auto const rings = next(BufferRule::kRings);
    removals->rings = static_cast<uint64_t*>(rings.untyped_data());
    removals->ring_size = static_cast<uint32_t>(fields[kTableRingSize]);
    reader.expect(dimension(rings, 1) == fields[kTableRingSize] + 1,
                  "rings of removed keys must have the size that the attribute says");
  }
  if (departures != nullptr) *departures = {};
  if (departures != nullptr && fields[kTableDepartedRows] > 0) {
    *departures = read_ring(next(BufferRule::kRing));
    reader.expect(departures->room == fields[kTableDepartedRows],
                  "a ring of departed rows must have the size that the attribute says");
    // Its kernels read both.
    reader.expect(part == kIndexPart && arrays.num_states == 2 && arrays.half_states == 0 &&
                      arrays.state_width[kLocationState] == 1 &&
                      arrays.state_width[kHeldState] == 1,
                  "a table with a ring is an index part, with places and holds");
  }
  return arrays;
}

// Of a table whose sketch, if the call has one, begins at `sketch`.
Admission read_admission(BufferReader& reader, uint32_t* sketch, int64_t const* fields) {
  Admission result{};
  result.rule = static_cast<AdmissionRule>(fields[kTableAdmission]);
  result.keeps_scores = static_cast<uint8_t>(fields[kTableKeepsScores]);
  result.counter_bits = static_cast<uint8_t>(fields[kTableSketchBits]);
  result.sketch_words = static_cast<uint16_t>(fields[kTableSketchWords]);
  result.threshold = static_cast<uint32_t>(fields[kTableThreshold]);
  auto const counts = result.rule == AdmissionRule::kFrequency;
  auto const bits = result.counter_bits;
  reader.expect(!counts || (sketch != nullptr && result.sketch_words % kSketchRows == 0 &&
                            (bits == 8 || bits == 16)),
                "a table that admits by frequency must have a sketch of four rows of counters");
  constexpr auto kWords = kBucketBytes / 4;
  auto const of_each = result.sketch_words / kWords;  // buckets
  reader.expect(!counts_keys(result.rule) ||
                    (sketch != nullptr && of_each > 0 && result.sketch_words % kWords == 0 &&
                     fields[kTableLocalBuckets] <= kMostBuckets / of_each),
                "a table that counts keys must have buckets for them");
  if (sketch != nullptr) {
    result.sketch = sketch + fields[kTableFirstBucket] * result.sketch_words;
  }
  return result;
}

// Of a table whose log, if it has one, is a part of `arrays`.
Removals read_removals(BufferReader& reader, Removals const& arrays, int64_t const* fields) {
  Removals result{};
  result.keep_for = static_cast<uint64_t>(fields[kTableKeepFor]);
  result.ring_size = static_cast<uint32_t>(fields[kTableRingSize]);
  if (result.ring_size == 0) return result;
  reader.expect(arrays.rings != nullptr && arrays.ring_size == result.ring_size,
                "a table with a log of removed keys must come with rings of its size");
  auto const rows = fields[kTableCounterRows];
  reader.expect(rows > 0 && fields[kTableLocalBuckets] % rows == 0,
                "a table with a log must have equally many buckets for each row of counters");
  result.rings = arrays.rings + fields[kTableFirstRow] * (int64_t{result.ring_size} + 1);
  return result;
}

// The rows part of a tiered table is all of its arrays.
void count_rows_part(BufferReader& reader, TableRef& table, int64_t const* fields) {
  auto const rows = reader.sizes().knows(kArraySlots) ? reader.sizes().get(kArraySlots) : 0;
  table.local_buckets = fields[kTableLocalBuckets];
  table.num_buckets = static_cast<uint64_t>(fields[kTableNumBuckets]);
  table.num_groups = static_cast<uint32_t>(rows);
  reader.expect(0 < rows && rows <= table.local_buckets * kBucketCapacity && rows <= kMostInt32,
                "a rows part must have at most 128 rows a bucket");
}

// Moves the pointers to the table's part of its arrays.
void move_to_table(BufferReader& reader, TableRef& table, int64_t const* fields,
                   int64_t const* packed) {
  auto const bucket = fields[kTableFirstBucket], buckets = fields[kTableLocalBuckets];
  auto const row = fields[kTableFirstRow], rows = fields[kTableCounterRows];
  reader.expect(bucket + buckets <= table.local_buckets,
                "a table's buckets must lie in its arrays");
  reader.expect(table.counters == nullptr || (rows > 0 && row + rows <= table.counter_rows),
                "a table must have rows of counters");
  if (reader.failed()) return;
  auto const slot = bucket * kBucketCapacity;
  table.num_buckets = static_cast<uint64_t>(fields[kTableNumBuckets]);
  table.local_buckets = buckets;
  table.index += bucket * bucket_bytes(policy_of(fields));
  if (table.values != nullptr) {
    auto const element = table.value_type == ValueType::kFloat32 ? 4 : 2;
    auto const bytes = packed != nullptr ? packed_bytes(packed) : table.dim * element;
    table.values = static_cast<uint8_t*>(table.values) + slot * bytes;
  }
  for (int s = 0; s < table.num_states; ++s) {
    auto* const first = reinterpret_cast<uint8_t*>(table.states[s]);
    table.states[s] = reinterpret_cast<float*>(first + slot * bytes_of_state(table, s));
  }
  if (table.counters != nullptr) table.counters += row * kNumCounters;
  table.counter_rows = static_cast<int32_t>(rows);
}

}  // namespace

void check_bucket(BufferReader& reader, ffi::AnyBuffer const& index, int64_t const* fields) {
  reader.expect(dimension(index, 1) * 4 == bucket_bytes(policy_of(fields)),
                "a customized table, and no other, has custom scores behind its buckets");
}

bool check_tables(BufferReader& reader, TableAttrs const& attrs) {
  if (!reader.records(RecordRule::kTables, attrs.tables)) return false;
  auto const count = attrs.tables.size() / kNumTableFields;
  reader.expect(attrs.initializers.size() == count * 2 * kInitializerParameters,
                "attribute 'initializers' must have 12 numbers for each table");
  return reader.expect(attrs.state_initial.size() == count * kMaxStates,
                       "attribute 'state_initial' must have 4 numbers for each table");
}

bool is_one_table(BufferReader& reader, TableAttrs const& attrs) {
  return check_tables(reader, attrs) &&
         reader.expect(attrs.tables.size() == kNumTableFields, "the call is about one table");
}

void read_tables(BufferReader& reader, TableAttrs const& attrs, TableParts parts, bool aliased,
                 int32_t count, TableRef* tables, Admission* admissions, Removals* removals,
                 Departures* departures) {
  TableRef arrays{};
  Admission of_arrays{};
  Removals removals_of_arrays{};
  Departures departures_of_arrays{};
  int32_t owner = 0;  // the table that the arrays came with
  for (int32_t t = 0; t < count; ++t) {
    reader.at("table ", t);
    auto const* const fields = attrs.tables.begin() + t * kNumTableFields;
    auto const shares = t > 0 && fields[kTableShares] != 0;
    auto const* const packed = packed_fields(parts, shares ? owner : t);
    if (!shares) {
      arrays = read_arrays(reader, fields, parts, packed, aliased,
                           admissions == nullptr ? nullptr : &of_arrays,
                           removals == nullptr ? nullptr : &removals_of_arrays,
                           departures == nullptr ? nullptr : &departures_of_arrays);
      owner = t;
    }
    auto& table = tables[t] = arrays;
    auto const bytes = bucket_bytes(policy_of(attrs.tables.begin() + owner * kNumTableFields));
    reader.expect(bucket_bytes(policy_of(fields)) == bytes,
                  "a customized table shares its arrays with such tables only");
    if (fields[kTablePart] == kRowsPart) {
      count_rows_part(reader, table, fields);
    } else {
      move_to_table(reader, table, fields, packed);
    }
    if (admissions != nullptr) admissions[t] = read_admission(reader, of_arrays.sketch, fields);
    if (removals != nullptr) {
      removals[t] = read_removals(reader, removals_of_arrays, fields);
    }
    if (departures != nullptr) {
      departures[t] = departures_of_arrays;
      reader.expect(!shares || departures[t].ring == nullptr,
                    "a table with a ring of departed rows shares its arrays with no other");
    }
    describe_table(attrs, t, table);
    reader.expect(fields[kTablePart] != kIndexPart || !writes_rows(table.initializer.kind),
                  "the index part of a tiered table has no rows to initialize");
  }
}

Departures read_ring(ffi::AnyBuffer const& ring) {
  return {data<uint32_t>(ring), static_cast<uint32_t>(dimension(ring, 0) - 1)};
}

void take_values(TableRef& table, ffi::AnyBuffer const& values) {
  table.values = values.untyped_data();
  table.dim = static_cast<int32_t>(dimension(values, 1));
  table.value_type = value_type_of(values);
}

void take_state(TableRef& table, int s, ffi::AnyBuffer const& state) {
  table.states[s] = static_cast<float*>(state.untyped_data());
  auto const half = value_type_of(state) == ValueType::kBFloat16 ? 1 : 0;
  table.half_states = static_cast<uint8_t>(table.half_states | half << s);
  table.state_width[s] =
      state.dimensions().size() > 1 ? static_cast<int32_t>(dimension(state, 1)) : 1;
}

void describe_table(TableAttrs const& attrs, int32_t t, TableRef& table) {
  auto const* const fields = attrs.tables.begin() + t * kNumTableFields;
  table.policy = policy_of(fields);
  table.evicts = static_cast<OnFull>(fields[kTableEvicts]);
  table.halflife = static_cast<uint32_t>(std::max<int64_t>(1, fields[kTableHalflife]));
  table.skips_nonfinite = static_cast<int16_t>(fields[kTableSkipsNonfinite]);
  if (fields[kTablePart] != kRowsPart) {
    table.hash = factors_of_seed(static_cast<uint64_t>(fields[kTableHashSeed]));
  }
  table.rounds_stochastically = static_cast<int8_t>(fields[kTableRounding]);
  table.initializer = read_initializer(attrs, t, 0);
  table.eval_initializer = read_initializer(attrs, t, 1);
  for (int s = 0; s < kMaxStates; ++s) {
    table.state_initial[s] = attrs.state_initial[size_t(t * kMaxStates + s)];
  }
}

}  // namespace dynemb
