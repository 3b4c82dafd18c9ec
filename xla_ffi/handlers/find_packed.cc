// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/find_packed.cc: serving lookup in tables whose rows are packed.
#include "xla_ffi/handlers/feature_operation.h"
#include "xla_ffi/handlers/registrations.h"

namespace dynemb {
namespace {

struct FindPacked {
  static constexpr auto kTarget = "dynemb_find_packed";
  static constexpr auto kRun = &backend::find_packed;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_features().Attr<IntAttr>("packed"); }

  FindPackedArgs args;

  void read(BufferReader& reader, TableAttrs const& attrs, IntAttr features, IntAttr packed) {
    args.num_tables = args.num_features = 0;
    args.code = RowCode::kInt8;
    if (!set_counts(reader, args, attrs, features) || !read_code(reader, packed)) return;
    args.given = nullptr;
    args.stamps = nullptr;
    auto const seeded = any_table<InitializerKind>(attrs.tables, kTableEvalInitializer, is_seeded);
    read_tables(reader, attrs, {true, false, seeded, &packed}, false, args.num_tables, args.tables);
    read_lookups(reader, features_of(features, args), false);
  }

  bool read_code(BufferReader& reader, IntAttr packed) {
    if (!reader.records(RecordRule::kPacked, packed)) return false;
    if (!reader.expect(count_rows(packed, kNumPackedFields) == args.num_tables,
                       "attribute 'packed' must have 3 numbers for each table")) {
      return false;
    }
    auto same = true;
    for (size_t row = 0; row < packed.size(); row += kNumPackedFields) {
      same = same && packed[row + kPackedCode] == packed[kPackedCode];
    }
    if (args.num_tables > 0) args.code = static_cast<RowCode>(packed[kPackedCode]);
    return reader.expect(same, "the tables of a call must have one code");
  }
};

}  // namespace

Registration find_packed_registration() { return registration_of<FindPacked>(); }

}  // namespace dynemb
