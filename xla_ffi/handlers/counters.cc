// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/counters.cc: numbers that are added to the counters of tables.
#include <algorithm>

#include "core/args.h"
#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/registrations.h"

namespace dynemb {
namespace {

struct AddToCounters {
  static constexpr auto kTarget = "dynemb_add_to_counters";
  static constexpr auto kRun = &backend::add_to_counters;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return dynemb::bind().Attr<IntAttr>("places"); }

  AddToCountersArgs args;

  // places: of each number the array and the counter in it.
  void read(BufferReader& reader, IntAttr places) {
    args.num_additions = 0;
    auto const count = static_cast<int64_t>(places.size()) / 2;
    auto const fits = places.size() % 2 == 0 && count <= kMaxFeatures;
    if (!reader.expect(fits, "a call adds up to 128 numbers, each with two for its place")) return;
    for (int64_t i = 0; i < count; ++i) {
      args.additions[i].number = data<uint32_t>(reader.next_arg(BufferRule::kMalformed));
    }
    int64_t arrays = 0;
    for (int64_t i = 0; i < count; ++i) {
      auto const array = places[size_t(2 * i)];
      // In order, so that there is a number for each array.
      if (!reader.expect(array >= 0 && array <= arrays, "an array is passed over")) return;
      arrays = std::max(arrays, array + 1);
    }
    for (int64_t n = 0; n < arrays && !reader.failed(); ++n) {
      reader.sizes().forget(kCounterRows);
      auto const counters = reader.next_aliased(BufferRule::kCounters);
      if (reader.failed()) return;
      auto const size = static_cast<int64_t>(counters.element_count()) / 2;
      for (int64_t i = 0; i < count; ++i) {
        if (places[size_t(2 * i)] != n) continue;
        auto const place = places[size_t(2 * i + 1)];
        if (!reader.expect(place >= 0 && place < size, "a counter behind its array")) return;
        args.additions[i].counter = data<uint64_t>(counters) + place;
      }
    }
    if (!reader.failed()) args.num_additions = static_cast<int32_t>(count);
  }
};

}  // namespace

Registration add_to_counters_registration() { return registration_of<AddToCounters>(); }

}  // namespace dynemb
