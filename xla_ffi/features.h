// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/features.h: the buffers and attributes of features become FeatureRefs.
#pragma once

#include <cstdint>

#include "core/args.h"
#include "xla_ffi/buffers.h"
#include "xla_ffi/rows.h"
#include "xla_ffi/schema.h"
#include "xla_ffi/tables.h"

namespace dynemb {

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

// Reads the ids of the next feature, which `rule` describes.
void set_ids(BufferReader& reader, BufferRule rule, FeatureRef& feature);

// The features of a call, and its tables, which are read before them.
struct CallFeatures {
  IntAttr attribute;
  FeatureRef* features;
  int32_t num_features;
  TableRef const* tables;
  int32_t num_tables;
  uint32_t const** uses = nullptr;  // of a training lookup
};

template <class OpArgs>
CallFeatures features_of(IntAttr attribute, OpArgs& args) {
  return {attribute, args.features, args.num_features, args.tables, args.num_tables};
}

// Reads what a lookup takes and returns for its features. `trains`: bags that are averaged return
// the factor of their gradients too.
void read_lookups(BufferReader& reader, CallFeatures const& call, bool trains);

// Of the index part of a tiered table a lookup returns no rows: refuses features that have some.
void check_index_parts(BufferReader& reader, CallFeatures const& call);

// Reads what tier_rows takes and returns for its features: slots are an operand there.
void read_tier_rows(BufferReader& reader, CallFeatures const& call);

// Reads the gradients of all features, and which rows they belong to.
void read_gradients(BufferReader& reader, CallFeatures const& call, bool with_ids);

// One for each table; null if the slots were found in the very state of the call.
inline Stamp const* stamps_of_lookup(BufferReader& reader, int64_t stamped) {
  return stamped == 0 ? nullptr : data<Stamp>(reader.next_arg(BufferRule::kStamps));
}

}  // namespace dynemb
