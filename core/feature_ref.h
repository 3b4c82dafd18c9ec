// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/feature_ref.h: a view of the ids of one feature in one call, and how they form bags.
#pragma once

#include <cstdint>

#include "core/keys.h"
#include "core/macros.h"
#include "core/table_ref.h"
#include "core/value_type.h"

namespace dynemb {

enum class Pooling : int32_t {
  kNone = 0,     // one row per id
  kSum = 1,      // one row per bag
  kMean = 2,     // one row per bag, divided by the number of its ids (padding not counted)
  kNoRows = 3,   // slots only
  kUnstored = 4  // one row per id; where it has a slot, or is padding, anything may stand
};

// Where rows lie in their array: `group` of them follow each other, and a group begins `stride`
// elements after the one before. So the rows of several features can share an array of which each
// device gets an equal part. group 0: all rows follow each other.
struct RowPlaces {
  int32_t group;
  int32_t on_peers;  // 1: groups lie in memory of several GPUs
  union {
    int64_t stride;         // a multiple of 16 bytes
    int64_t const* begins;  // on peers: elements before each group
  };
};

struct FeatureRef {
  void const* ids;         // [num_ids] of id_type; after the last bag they stand for padding
  IdType id_type;          //
  int32_t table;           // which of the call's tables
  int64_t num_ids;         //
  int64_t num_bags;        // == num_ids for kNone
  int64_t bag_size;        // ids per bag; 0: see offsets
  int32_t const* offsets;  // [num_bags + 1], or null
  float const* weights;    // [num_ids], or null
  float* scale;            // [num_bags], kMean only: 1 / ids of the bag
  Pooling pooling;         //
  ValueType row_type;      //
  void* rows;              // [num_bags, dim] of row_type: written by a lookup, read as gradients
  RowPlaces places;        // of the rows
  int32_t* slots;          // [num_ids], see core/slot.h
};

// Are there no sums? Those over bags of one id each, without weights, are the rows themselves.
DYNEMB_HD bool has_row_of_each_id(FeatureRef const& feature) {
  return feature.pooling == Pooling::kNone || feature.pooling == Pooling::kUnstored ||
         (feature.pooling == Pooling::kSum && feature.bag_size == 1 && feature.weights == nullptr);
}

struct BagRange {
  int64_t begin, end;
};

DYNEMB_HD BagRange bag_range(FeatureRef const& feature, int64_t bag) {
  if (feature.bag_size > 0) return {bag * feature.bag_size, (bag + 1) * feature.bag_size};
  return {feature.offsets[bag], feature.offsets[bag + 1]};
}

// The part of a range that lies in another one, or nothing at its begin or end. A call's offsets
// are made by core/offsets.h, and lie in order; but nothing may be read outside of an array if they
// do not.
DYNEMB_HD BagRange within(BagRange const& range, BagRange const& limits) {
  auto const clamped = [&](int64_t position, int64_t least) {
    return position < least ? least : position > limits.end ? limits.end : position;
  };
  auto const begin = clamped(range.begin, limits.begin);
  return {begin, clamped(range.end, begin)};
}

// Where the positions of bags end: those behind it are padding, whatever ids stand there.
DYNEMB_HD int64_t end_of_bags(FeatureRef const& feature) {
  if (feature.offsets == nullptr) return feature.num_ids;
  return within({feature.offsets[feature.num_bags], feature.num_ids}, {0, feature.num_ids}).begin;
}

// A division of 64 bits takes five times as long as one of 32.
DYNEMB_HD int64_t quotient(int64_t dividend, int64_t divisor) {
  if ((dividend | divisor) >> 32 != 0) return dividend / divisor;
  return static_cast<uint32_t>(dividend) / static_cast<uint32_t>(divisor);
}

// Returns the elements of the array before a row.
DYNEMB_HD int64_t row_offset(RowPlaces const& places, int64_t row, int32_t dim) {
  if (places.group == 0) return row * dim;
  auto const group = quotient(row, places.group);
  auto const begin = places.on_peers == 0 ? group * places.stride : places.begins[group];
  return begin + (row - group * places.group) * dim;
}

// The bag that a position lies in. Precondition: the position is in a bag; those after the last bag
// hold padding.
DYNEMB_HD int64_t bag_of(FeatureRef const& feature, int64_t position) {
  if (feature.bag_size == 1) return position;
  if (feature.bag_size > 0) return quotient(position, feature.bag_size);
  int64_t low = 0, high = feature.num_bags;  // offsets[low] <= position < offsets[high]
  while (high - low > 1) {
    auto const middle = (low + high) / 2;
    (feature.offsets[middle] <= position ? low : high) = middle;
  }
  return low;
}

// The slots that the gradients of a feature may go to: none where it has no bags, since then it has
// no gradients either, whatever its slots are.
DYNEMB_HD uint32_t slot_limit(TableRef const& table, FeatureRef const& feature) {
  return feature.num_bags == 0 ? 0 : num_slots(table);
}

DYNEMB_HD float weight_of(FeatureRef const& feature, int64_t position) {
  return feature.weights == nullptr ? 1.0f : feature.weights[position];
}

// What the gradient of a bag is multiplied by on its way to the row of one of its ids.
DYNEMB_HD float gradient_factor(FeatureRef const& feature, int64_t bag, int64_t position) {
  auto const scale = feature.scale == nullptr ? 1.0f : feature.scale[bag];
  return scale * weight_of(feature, position);
}

}  // namespace dynemb
