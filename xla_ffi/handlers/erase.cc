// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/erase.cc: keys are erased from a table.
#include "core/args.h"
#include "xla_ffi/features.h"
#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/registrations.h"

namespace dynemb {
namespace {

struct Erase {
  static constexpr auto kTarget = "dynemb_erase";
  static constexpr auto kRun = &backend::erase;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_table(); }

  EraseArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs) {
    if (!is_one_table(reader, attrs)) return;
    read_tables(reader, attrs, {false, false, true}, true, 1, &args.table, nullptr, &args.removals);
    FeatureRef ids{};
    set_ids(reader, BufferRule::kIds, ids);
    args.ids = ids.ids;
    args.id_type = ids.id_type;
    args.num_ids = ids.num_ids;
    args.slots = data<int32_t>(reader.next_ret(BufferRule::kSlots));
  }
};

}  // namespace

Registration erase_registration() { return registration_of<Erase>(); }

}  // namespace dynemb
