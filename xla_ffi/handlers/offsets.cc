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

struct Offsets {
  static constexpr auto kTarget = "dynemb_offsets";
  static constexpr auto kRun = &backend::offsets;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return dynemb::bind().Attr<int64_t>("capacity"); }

  OffsetsArgs args;

  void read(BufferReader& reader, int64_t capacity) {
    reader.expect(capacity >= 0 && capacity < kMostInt32,
                  "the capacity must be from 0 to 2^31 - 2");
    auto const lengths = reader.next_arg(BufferRule::kBagLengths);
    auto const num_bags = static_cast<int64_t>(lengths.element_count());
    reader.sizes().set(kNumOffsets, num_bags + 1);
    auto const offsets = reader.next_ret(BufferRule::kMadeOffsets);
    auto const malformed = reader.next_ret(BufferRule::kMalformed);
    args = {num_bags,
            lengths.untyped_data(),
            length_type_of(lengths),
            static_cast<int32_t>(capacity),
            data<int32_t>(offsets),
            data<uint32_t>(malformed)};
  }
};

}  // namespace

Registration offsets_registration() { return registration_of<Offsets>(); }

}  // namespace dynemb
