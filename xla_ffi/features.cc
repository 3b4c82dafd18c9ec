// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/features.cc: the buffers and attributes of features become FeatureRefs.
#include "xla_ffi/features.h"

#include <algorithm>

#include "xla_ffi/limits.h"

namespace dynemb {
namespace {

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

int64_t const* fields_of(CallFeatures const& call, int32_t f) {
  return call.attribute.begin() + f * kNumFeatureFields;
}

int64_t const* rows_fields(CallFeatures const& call, int32_t f) {
  return fields_of(call, f) + kFeatureRows;
}

int32_t dim_of(CallFeatures const& call, FeatureRef const& feature) {
  return call.tables[feature.table].dim;
}

// What the attributes say of a feature, not its buffers.
FeatureRef describe_feature(int64_t const* fields) {
  FeatureRef feature{};
  feature.table = static_cast<int32_t>(fields[kFeatureTable]);
  feature.pooling = static_cast<Pooling>(fields[kFeaturePooling]);
  feature.bag_size = fields[kFeatureBagSize];
  return feature;
}

// Sets what the attributes say of feature `f`, so that its buffers can be read. False where it is
// of no table.
bool begin_feature(BufferReader& reader, CallFeatures const& call, int32_t f) {
  auto& feature = call.features[f] = describe_feature(fields_of(call, f));
  if (!reader.expect(feature.table < call.num_tables, "a feature must be of one of the tables")) {
    return false;
  }
  auto const pools = feature.pooling == Pooling::kSum || feature.pooling == Pooling::kMean;
  reader.expect(pools || feature.bag_size == 1, "ids that are not pooled are bags of one");
  reader.at("feature ", f);
  auto& sizes = reader.sizes();
  sizes.forget(kNumIds, kNumBags, kNumOffsets);
  sizes.set(kDim, dim_of(call, feature));
  return true;
}

// Where bags have one size: how many there are.
void count_bags(BufferReader& reader, FeatureRef& feature) {
  if (feature.bag_size == 0) return;
  feature.num_bags = feature.num_ids / feature.bag_size;
  reader.expect(feature.num_bags * feature.bag_size == feature.num_ids,
                "bags do not match the number of ids");
  reader.sizes().set(kNumBags, feature.num_bags);
}

// Offsets and weights, where the feature has them.
void set_bags(BufferReader& reader, int64_t const* fields, FeatureRef& feature) {
  if (feature.bag_size == 0) {
    // Gradients that stand before the offsets have said how many bags there are.
    auto& sizes = reader.sizes();
    if (sizes.knows(kNumBags)) sizes.set(kNumOffsets, sizes.get(kNumBags) + 1);
    auto const offsets = reader.next_arg(BufferRule::kOffsets);
    feature.offsets = data<int32_t>(offsets);
    feature.num_bags = std::max<int64_t>(dimension(offsets, 0) - 1, 0);
    sizes.set(kNumBags, feature.num_bags);
  }
  if (fields[kFeatureHasWeights] != 0) {
    feature.weights = data<float>(reader.next_arg(BufferRule::kWeights));
  }
}

// A training lookup has uses after offsets and weights, where ids stand for several.
void set_uses(BufferReader& reader, CallFeatures const& call, int32_t f) {
  if (call.uses == nullptr) return;
  auto const has = fields_of(call, f)[kFeatureHasUses] != 0;
  call.uses[f] = nullptr;
  if (!has) return;
  auto const uses = reader.next_arg(BufferRule::kUses);
  call.uses[f] = data<uint32_t>(uses);
  auto const& table = call.tables[call.features[f].table];
  auto const is_scored = table.policy == ScorePolicy::kCustomized;
  reader.expect(uses.dimensions().size() == (is_scored ? 2u : 1u),
                "uses have two more rows, of scores, where the table is customized and only there");
}

void set_rows(BufferReader& reader, ffi::AnyBuffer const& array, int64_t const* fields, int32_t dim,
              FeatureRef& feature) {
  auto const rows = view_rows(reader, array, fields, feature.num_bags, dim);
  feature.rows = rows.data;
  feature.row_type = rows.type;
  feature.places = rows.places;
}

void check_ids(BufferReader& reader, CallFeatures const& call) {
  int64_t total = 0;
  for (int32_t f = 0; f < call.num_features; ++f) total += call.features[f].num_ids;
  reader.expect(total <= kMostIds, "a call has at most 2^30 - 1 ids");
}

}  // namespace

void set_ids(BufferReader& reader, BufferRule rule, FeatureRef& feature) {
  auto const ids = reader.next_arg(rule);
  feature.ids = ids.untyped_data();
  feature.num_ids = dimension(ids, 0);
  feature.id_type = id_type_of(ids);
}

namespace {

// Reads ids and bags of a feature of a lookup. Returns false if the call has failed.
bool begin_lookup(BufferReader& reader, CallFeatures const& call, int32_t f) {
  if (!begin_feature(reader, call, f)) return false;
  auto& feature = call.features[f];
  set_ids(reader, BufferRule::kIds, feature);
  count_bags(reader, feature);
  set_bags(reader, fields_of(call, f), feature);
  return true;
}

void set_result_rows(BufferReader& reader, RowArrays& arrays, CallFeatures const& call, int32_t f) {
  auto const* const fields = rows_fields(call, f);
  auto& feature = call.features[f];
  set_rows(reader, arrays.result(fields), fields, dim_of(call, feature), feature);
}

}  // namespace

void read_lookups(BufferReader& reader, CallFeatures const& call, bool trains) {
  RowArrays arrays(reader);
  for (int32_t f = 0; f < call.num_features; ++f) {
    if (!begin_lookup(reader, call, f)) return;
    auto& feature = call.features[f];
    set_uses(reader, call, f);
    if (feature.pooling != Pooling::kNoRows) set_result_rows(reader, arrays, call, f);
    feature.slots = data<int32_t>(reader.next_ret(BufferRule::kSlots));
    if (trains && feature.pooling == Pooling::kMean) {
      feature.scale = data<float>(reader.next_ret(BufferRule::kScale));
    }
  }
  check_ids(reader, call);
}

void check_index_parts(BufferReader& reader, CallFeatures const& call) {
  if (reader.failed()) return;
  for (int32_t f = 0; f < call.num_features; ++f) {
    auto const& feature = call.features[f];
    reader.expect(
        feature.pooling == Pooling::kNoRows || call.tables[feature.table].values != nullptr,
        "the index part of a tiered table has no rows");
  }
}

void read_tier_rows(BufferReader& reader, CallFeatures const& call) {
  RowArrays arrays(reader);
  for (int32_t f = 0; f < call.num_features; ++f) {
    if (!begin_lookup(reader, call, f)) return;
    auto& feature = call.features[f];
    feature.slots = data<int32_t>(reader.next_arg(BufferRule::kSlots));
    reader.expect(feature.pooling != Pooling::kNoRows, "tier_rows returns rows");
    set_result_rows(reader, arrays, call, f);
    if (feature.pooling == Pooling::kMean) {
      feature.scale = data<float>(reader.next_ret(BufferRule::kScale));
    }
  }
  check_ids(reader, call);
}

void read_gradients(BufferReader& reader, CallFeatures const& call, bool with_ids) {
  RowArrays arrays(reader);
  for (int32_t f = 0; f < call.num_features; ++f) {
    if (!begin_feature(reader, call, f)) return;
    auto& feature = call.features[f];
    if (with_ids) set_ids(reader, BufferRule::kIds, feature);
    auto const slots = reader.next_arg(BufferRule::kSlots);
    feature.slots = data<int32_t>(slots);
    feature.num_ids = static_cast<int64_t>(slots.element_count());
    count_bags(reader, feature);
    auto const* const fields = rows_fields(call, f);
    auto const gradients = arrays.operand(fields);
    set_bags(reader, fields_of(call, f), feature);
    set_rows(reader, gradients, fields, dim_of(call, feature), feature);
    if (feature.pooling == Pooling::kMean) {
      feature.scale = data<float>(reader.next_arg(BufferRule::kScale));
    }
  }
  check_ids(reader, call);
}

}  // namespace dynemb
