// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/tables.h: the buffers and attributes of tables become TableRefs.
#pragma once

#include <cstdint>

#include "core/admission.h"
#include "core/departures.h"
#include "core/removals.h"
#include "core/table_ref.h"
#include "xla_ffi/buffers.h"
#include "xla_ffi/schema.h"

namespace dynemb {

// What of a table a call takes.
struct TableParts {
  bool values, states, counters;
  IntAttr const* packed = nullptr;  // of each table, where values are packed rows (PackedField)
  bool index_part = false, rows_part = false;  // whether a table may be one (TablePart)
};

struct TableAttrs {
  IntAttr tables;
  FloatAttr initializers;
  FloatAttr state_initial;
};

// The attributes of a call about tables: as long as `count` tables need, each number in its range.
bool check_tables(BufferReader& reader, TableAttrs const& attrs);

// Checks a call about one table in the same way.
bool is_one_table(BufferReader& reader, TableAttrs const& attrs);

// Reads the buffers of the tables of a call. With `aliased`, each is a result too. `admissions`: of
// a training lookup, which takes sketches. `removals`: of a call that may remove rows.
// `departures`: of a training lookup, which takes rings.
void read_tables(BufferReader& reader, TableAttrs const& attrs, TableParts parts, bool aliased,
                 int32_t count, TableRef* tables, Admission* admissions = nullptr,
                 Removals* removals = nullptr, Departures* departures = nullptr);

// The words of a bucket of an index are those of the table's policy.
void check_bucket(BufferReader& reader, ffi::AnyBuffer const& index, int64_t const* fields);

// A ring of departed rows; it has a header, and room for one row or more.
Departures read_ring(ffi::AnyBuffer const& ring);

// These take the rows of a table, and one of its optimizer states.
void take_values(TableRef& table, ffi::AnyBuffer const& values);
void take_state(TableRef& table, int s, ffi::AnyBuffer const& state);

// What the attributes say of table `t`, not its arrays.
void describe_table(TableAttrs const& attrs, int32_t t, TableRef& table);

// Whether is(field) holds for one of the tables.
template <class Enum, class Predicate>
bool any_table(IntAttr tables, TableField field, Predicate const& is) {
  for (size_t row = 0; row < tables.size(); row += kNumTableFields) {
    if (is(static_cast<Enum>(tables[row + field]))) return true;
  }
  return false;
}

}  // namespace dynemb
