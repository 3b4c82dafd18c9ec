// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/rule.cc: a rule about the rows of a table, and the decay of their counts.
#include "core/rule.h"

#include "core/args.h"
#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/registrations.h"

namespace dynemb {
namespace {

auto bind_rule() { return bind_table().Attr<int64_t>("fields"); }

// Both calls begin with the same buffers.
bool read_rule_of(BufferReader& reader, TableAttrs const& attrs, int64_t fields, bool aliased,
                  RuleArgs& args) {
  constexpr int64_t kAllFields = kRuleComparisons | kAnySuffices;
  if (!is_one_table(reader, attrs) ||
      !reader.expect((fields & ~kAllFields) == 0, "attribute 'fields' has unknown bits")) {
    return false;
  }
  args.fields = static_cast<uint32_t>(fields);
  // What changes the table removes rows.
  read_tables(reader, attrs, {false, false, true}, aliased, 1, &args.table, nullptr,
              aliased ? &args.removals : nullptr);
  args.numbers = data<uint32_t>(reader.next_arg(BufferRule::kRuleNumbers));
  if ((fields & kNormBelow) != 0) {
    reader.sizes().set(kNumSlots, args.table.local_buckets * kBucketCapacity);
    args.norms = data<float>(reader.next_arg(BufferRule::kNorms));
  }
  return true;
}

struct CountRule {
  static constexpr auto kTarget = "dynemb_count_rule";
  static constexpr auto kRun = &backend::count_rule;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_rule(); }

  RuleArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs, int64_t fields) {
    if (!read_rule_of(reader, attrs, fields, false, args)) return;
    args.result = data<uint32_t>(reader.next_ret(BufferRule::kBins));
  }
};

struct EraseRule {
  static constexpr auto kTarget = "dynemb_erase_rule";
  static constexpr auto kRun = &backend::erase_rule;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_rule(); }

  RuleArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs, int64_t fields) {
    if (!read_rule_of(reader, attrs, fields, true, args)) return;
    args.result = data<uint32_t>(reader.next_ret(BufferRule::kRemoved));
  }
};

struct Decay {
  static constexpr auto kTarget = "dynemb_decay";
  static constexpr auto kRun = &backend::decay;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_table(); }

  DecayArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs) {
    if (!is_one_table(reader, attrs)) return;
    read_tables(reader, attrs, {false, false, false}, true, 1, &args.table);
    args.factor = data<float>(reader.next_arg(BufferRule::kFactor));
  }
};

}  // namespace

Registration count_rule_registration() { return registration_of<CountRule>(); }
Registration erase_rule_registration() { return registration_of<EraseRule>(); }
Registration decay_registration() { return registration_of<Decay>(); }

}  // namespace dynemb
