// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/rows.cc: rows, states and scores of given slots, read and written.
#include <type_traits>

#include "core/row.h"
#include "core/slot.h"
#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kSlotsPerChunk = 256;

template <class V>
void read_row(RowsArgs const& args, int64_t i, V const* row) {
  auto* const out = args.values + i * args.table.dim;
  for (int32_t c = 0; c < args.table.dim; ++c) out[c] = row == nullptr ? 0.0f : to_float(row[c]);
}

template <class V>
void gather_one(RowsArgs const& args, int64_t i) {
  auto const& table = args.table;
  auto const slot = args.slots[i];
  if (args.values != nullptr) read_row<V>(args, i, slot < 0 ? nullptr : row_at<V>(table, slot));
  for (int s = 0; s < table.num_states; ++s) {
    if (args.states[s] == nullptr) continue;
    auto const width = table.state_width[s];
    for (int32_t c = 0; c < width; ++c) {
      args.states[s][i * width + c] = slot < 0 ? 0.0f : state_at(table, s, slot)[c];
    }
  }
  if (args.scores != nullptr) args.scores[i] = slot < 0 ? 0 : *score_at(table, slot);
}

template <class V>
void scatter_one(RowsArgs const& args, int64_t i) {
  auto const& table = args.table;
  auto const slot = args.slots[i];
  if (slot < 0) return;
  if (args.values != nullptr) {
    auto const* const from = args.values + i * table.dim;
    for (int32_t c = 0; c < table.dim; ++c) from_float(from[c], row_at<V>(table, slot) + c);
  }
  for (int s = 0; s < table.num_states; ++s) {
    if (args.states[s] == nullptr) continue;
    auto const width = table.state_width[s];
    for (int32_t c = 0; c < width; ++c) state_at(table, s, slot)[c] = args.states[s][i * width + c];
  }
  if (args.scores != nullptr) *score_at(table, slot) = args.scores[i];
}

}  // namespace

void gather(RowsArgs const& args, ThreadPool const& pool) {
  with_value_type(args.table.value_type, [&](auto zero) {
    using V = decltype(zero);
    for_each_range(pool, args.num_slots, kSlotsPerChunk, [&](int64_t begin, int64_t end) {
      for (auto i = begin; i < end; ++i) gather_one<V>(args, i);
    });
  });
}

void scatter(RowsArgs const& args, ThreadPool const& pool) {
  with_value_type(args.table.value_type, [&](auto zero) {
    using V = decltype(zero);
    for_each_range(pool, args.num_slots, kSlotsPerChunk, [&](int64_t begin, int64_t end) {
      for (auto i = begin; i < end; ++i) scatter_one<V>(args, i);
    });
  });
}

}  // namespace dynemb::cpu
