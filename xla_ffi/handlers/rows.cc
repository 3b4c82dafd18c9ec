// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/rows.cc: rows, states and scores of given slots: gather reads, scatter writes.
#include "core/args.h"
#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/registrations.h"

namespace dynemb {
namespace {

void read_slots(BufferReader& reader, TableAttrs const& attrs, bool counters, RowsArgs& args) {
  read_tables(reader, attrs, {true, true, counters, nullptr, true, true}, true, 1, &args.table);
  auto const slots = reader.next_arg(BufferRule::kSlotsOfRows);
  args.slots = data<int32_t>(slots);
  args.num_slots = static_cast<int64_t>(slots.element_count());
  reader.sizes().set(kDim, args.table.dim);
}

BufferRule rule_of_state(TableRef const& table, int s) {
  return table.state_width[s] == 1 ? BufferRule::kRowNumber : BufferRule::kRowState;
}

struct Gather {
  static constexpr auto kTarget = "dynemb_gather";
  static constexpr auto kRun = &backend::gather;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_table(); }

  RowsArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs) {
    if (!is_one_table(reader, attrs)) return;
    read_slots(reader, attrs, false, args);
    args.values = data<float>(reader.next_ret(BufferRule::kRowValues));
    for (int s = 0; s < args.table.num_states; ++s) {
      args.states[s] = data<float>(reader.next_ret(rule_of_state(args.table, s)));
    }
    reader.expect(args.table.values != nullptr, "the index part of a tiered table has no rows");
    auto const scores = reader.next_ret(BufferRule::kRowScores);
    args.scores = args.table.index == nullptr ? nullptr : data<uint64_t>(scores);
  }
};

struct Scatter {
  static constexpr auto kTarget = "dynemb_scatter";
  static constexpr auto kRun = &backend::scatter;
  static auto bind() {
    return bind_table().Attr<int64_t>("parts").Attr<int64_t>("last_wins").Attr<int64_t>("rounds");
  }

  RowsArgs args{};

  // `parts` has a bit for each of values, scores and the states, in this order. With `rounds` the
  // call has the table's counters too.
  void read(BufferReader& reader, TableAttrs const& attrs, int64_t parts, int64_t last_wins,
            int64_t rounds) {
    if (!is_one_table(reader, attrs)) return;
    args.last_wins = last_wins != 0 ? 1 : 0;
    args.rounds = rounds != 0 ? 1 : 0;
    read_slots(reader, attrs, rounds != 0, args);
    reader.expect(args.table.values != nullptr || parts == 2,
                  "of the index part of a tiered table only scores are written");
    reader.expect(args.table.index != nullptr || (parts & 2) == 0,
                  "the rows part of a tiered table has no scores");
    reader.expect(
        rounds == 0 || args.table.index != nullptr || args.table.rounds_stochastically != 0,
        "rows that are rounded stochastically come with their keys");
    if ((parts & 1) != 0) args.values = data<float>(reader.next_arg(BufferRule::kRowValues));
    if ((parts & 2) != 0) args.scores = data<uint64_t>(reader.next_arg(BufferRule::kRowScores));
    for (int s = 0; s < args.table.num_states; ++s) {
      if ((parts >> (2 + s) & 1) == 0) continue;
      args.states[s] = data<float>(reader.next_arg(rule_of_state(args.table, s)));
    }
  }

  static size_t scratch_bytes(CallShape const& shape) {
    RowsArgs args{};
    args.last_wins = 1;  // Python calls this for such a scatter only: another one needs none
    args.num_slots = shape.ids.at(0);
    return backend::scatter_scratch_bytes(args);
  }
};

}  // namespace

Registration gather_registration() { return registration_of<Gather>(); }
Registration scatter_registration() { return registration_of<Scatter>(); }

}  // namespace dynemb
