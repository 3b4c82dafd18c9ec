// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/features.cc: the buffers and attributes of features become FeatureRefs.
#include "xla_ffi/features.h"

#include <algorithm>
#include <optional>
#include <utility>

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

}  // namespace

void set_ids(BufferReader& reader, BufferRule rule, FeatureRef& feature) {
  auto const ids = reader.next_arg(rule);
  feature.ids = ids.untyped_data();
  feature.num_ids = dimension(ids, 0);
  feature.id_type = id_type_of(ids);
}

namespace {

bool has_uses(int64_t const* fields) { return fields[kFeatureHasUses] % 2 != 0; }

// How many ids of a feature lie in the array that features share; 0: they have an array of their
// own.
int64_t count_shared(int64_t const* fields) { return fields[kFeatureHasUses] / 2; }

// An array in which features have numbers one after the other. It comes with the first of them.
class SharedArray {
 public:
  explicit SharedArray(BufferReader& reader) : reader_(reader) {}

  // The next `count` numbers; null after a mistake.
  template <class T, class Next>
  T* take(int64_t count, int64_t words, Next const& next) {
    if (!array_) {
      reader_.sizes().forget(kElements);
      array_.emplace(next());
    }
    auto const begin = begin_;
    begin_ += count;
    reader_.sizes().set(kNumIds, count);
    auto const fits = begin_ <= dimension(*array_, 0);
    if (!reader_.expect(fits, "features have more ids than the array that they share")) {
      return nullptr;
    }
    return data<T>(*array_) + begin * words;
  }

 private:
  BufferReader& reader_;
  std::optional<ffi::AnyBuffer> array_;
  int64_t begin_ = 0;
};

// The ids and slots of the features of a call: in arrays of their own or in shared ones.
class IdArrays {
 public:
  explicit IdArrays(BufferReader& reader) : reader_(reader), ids_(reader), slots_(reader) {}

  void set_ids(int64_t const* fields, FeatureRef& feature) {
    auto const count = count_shared(fields);
    if (count == 0) return dynemb::set_ids(reader_, BufferRule::kIds, feature);
    feature.ids =
        ids_.take<uint32_t>(count, 2, [this] { return reader_.next_arg(BufferRule::kSharedIds); });
    feature.num_ids = count;
    feature.id_type = IdType::k64;
  }

  // Slots that the call reads; they tell how many ids there are, where it has no ids.
  void set_slots(int64_t const* fields, FeatureRef& feature) {
    auto const slots = take(fields, [this](auto rule) { return reader_.next_arg(rule); });
    feature.slots = slots.first;
    feature.num_ids = slots.second;
  }

  int32_t* slots_to_write(int64_t const* fields) {
    return take(fields, [this](auto rule) { return reader_.next_ret(rule); }).first;
  }

 private:
  // Slots, and how many they are.
  template <class Next>
  std::pair<int32_t*, int64_t> take(int64_t const* fields, Next const& next) {
    auto const count = count_shared(fields);
    if (count == 0) {
      auto const slots = next(BufferRule::kSlots);
      return {data<int32_t>(slots), dimension(slots, 0)};
    }
    auto const shared = [&next] { return next(BufferRule::kSharedSlots); };
    return {slots_.take<int32_t>(count, 1, shared), count};
  }

  BufferReader& reader_;
  SharedArray ids_, slots_;
};

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
  call.uses[f] = nullptr;
  if (!has_uses(fields_of(call, f))) return;
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

// Reads ids and bags of a feature of a lookup. Returns false if the call has failed.
bool begin_lookup(BufferReader& reader, IdArrays& ids, CallFeatures const& call, int32_t f) {
  if (!begin_feature(reader, call, f)) return false;
  auto& feature = call.features[f];
  ids.set_ids(fields_of(call, f), feature);
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
  IdArrays ids(reader);
  for (int32_t f = 0; f < call.num_features; ++f) {
    if (!begin_lookup(reader, ids, call, f)) return;
    auto& feature = call.features[f];
    set_uses(reader, call, f);
    if (feature.pooling != Pooling::kNoRows) set_result_rows(reader, arrays, call, f);
    feature.slots = ids.slots_to_write(fields_of(call, f));
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
  IdArrays ids(reader);
  for (int32_t f = 0; f < call.num_features; ++f) {
    if (!begin_lookup(reader, ids, call, f)) return;
    auto& feature = call.features[f];
    ids.set_slots(fields_of(call, f), feature);
    reader.expect(feature.pooling <= Pooling::kMean, "tier_rows returns rows");
    set_result_rows(reader, arrays, call, f);
    if (feature.pooling == Pooling::kMean) {
      feature.scale = data<float>(reader.next_ret(BufferRule::kScale));
    }
  }
  check_ids(reader, call);
}

void read_gradients(BufferReader& reader, CallFeatures const& call, bool with_ids) {
  RowArrays arrays(reader);
  IdArrays ids(reader);
  for (int32_t f = 0; f < call.num_features; ++f) {
    if (!begin_feature(reader, call, f)) return;
    auto& feature = call.features[f];
    if (with_ids) ids.set_ids(fields_of(call, f), feature);
    ids.set_slots(fields_of(call, f), feature);
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
