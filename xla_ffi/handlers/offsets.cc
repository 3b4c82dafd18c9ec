// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/offsets.cc: where the bags of a jagged input begin.
#include "core/args.h"
#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/registrations.h"
#include "xla_ffi/limits.h"

namespace dynemb {
namespace {

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

bool read_bags(BufferReader& reader, int64_t capacity, BagLengths& bags) {
  auto const fits = capacity >= 0 && capacity < kMostInt32;
  if (!reader.expect(fits, "the capacity must be from 0 to 2^31 - 2")) return false;
  reader.sizes().forget(kLengths, kNumOffsets);
  auto const lengths = reader.next_arg(BufferRule::kBagLengths);
  auto const num_bags = static_cast<int64_t>(lengths.element_count());
  reader.sizes().set(kNumOffsets, num_bags + 1);
  auto const offsets = reader.next_ret(BufferRule::kMadeOffsets);
  auto const malformed = reader.next_ret(BufferRule::kMalformed);
  bags = {num_bags,
          lengths.untyped_data(),
          length_type_of(lengths),
          static_cast<int32_t>(capacity),
          data<int32_t>(offsets),
          data<uint32_t>(malformed)};
  return !reader.failed();
}

// Programs that were exported before features shared a call have one for each.
struct Offsets {
  static constexpr auto kTarget = "dynemb_offsets";
  static constexpr auto kRun = &backend::offsets;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return dynemb::bind().Attr<int64_t>("capacity"); }

  OffsetsArgs args;

  void read(BufferReader& reader, int64_t capacity) {
    args.num_features = 1;
    read_bags(reader, capacity, args.features[0]);
  }
};

// Some features of one call.
struct OffsetsOfFeatures : Offsets {
  static constexpr auto kTarget = "dynemb_offsets_of_features";
  static auto bind() { return dynemb::bind().Attr<IntAttr>("capacities"); }

  void read(BufferReader& reader, IntAttr capacities) {
    args.num_features = 0;
    auto const fits = capacities.size() <= static_cast<size_t>(kMaxFeatures);
    if (!reader.expect(fits, "a call may have 128 features")) return;
    for (auto const capacity : capacities) {
      if (!read_bags(reader, capacity, args.features[args.num_features++])) return;
    }
  }
};

}  // namespace

Registration offsets_registration() { return registration_of<Offsets>(); }

Registration offsets_of_features_registration() { return registration_of<OffsetsOfFeatures>(); }

}  // namespace dynemb
