// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/lookup/probe_rows.h: from ids to rows, part by part: first the slots of a part
// (cpu/lookup/probe.h), while its rows are prefetched into the second cache; then the rows are
// copied or summed. In the first cache the rows would evict index lines before these are read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/args.h"
#include "cpu/lookup/probe.h"
#include "cpu/lookup/row_writer.h"
#include "cpu/loops/feature_chunks.h"
#include "cpu/loops/isa.h"

namespace dynemb::cpu {

constexpr int64_t kIdsPerChunk = 2048;
// Rows of a call larger than this are written past the caches.
constexpr int64_t kStreamBytes = int64_t{8} << 20;

// What the chunks of one feature have in common.
struct RowTask {
  TableRef const& table;
  FeatureRef const& feature;
  Initializer const& missing;  // for ids without a row
  bool streams;                // past the caches
};

inline bool streams_rows(LookupArgs const& args) {
  int64_t bytes = 0;
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto const& feature = args.features[f];
    bytes += feature.num_bags * args.tables[feature.table].dim * bytes_of(feature.row_type);
  }
  return bytes > kStreamBytes;
}

// Ids whose rows are prefetched into the second cache together; it must have room for the index,
// too.
inline int64_t ids_at_once(TableRef const& table) {
  constexpr int64_t kBytes = int64_t{256} << 10;
  auto const groups = kBytes / (table.dim * bytes_of(table.value_type)) / kProbeGroup;
  return std::max<int64_t>(1, groups) * kProbeGroup;
}

// Calls body(isa, writer) with the instruction set and a RowWriter for the table's rows.
template <class Body>
void with_writer(RowTask const& task, std::vector<int64_t>* put_off, Body const& body) {
  with_value_type(task.table.value_type, [&](auto stored) {
    with_isa([&](auto isa) {
      RowWriter<decltype(isa)::value, decltype(stored)> writer(
          task.table, task.feature, {task.table, task.missing}, task.streams, put_off);
      body(isa, writer);
    });
  });
  if (task.streams) end_streams();
}

// Probes the ids of a chunk; settle(position, slot, entry), with kMissingSlot for a key that is not
// there, returns the slot to keep. Then writes the rows, but for bags that were put off
// (RowWriter).
template <class Settle>
void probe_rows(RowTask const& task, FeatureChunk const& chunk, std::vector<int64_t>* put_off,
                Settle const& settle) {
  with_writer(task, put_off, [&](auto isa, auto& writer) {
    Probe<decltype(isa)::value> probe(task.table, task.feature);
    writer.start(chunk.first_bag, chunk.end_bag, {chunk.begin, chunk.end});
    auto const has_rows = writer.has_rows();
    auto* const slots = task.feature.slots;
    auto const found = [&](int64_t position, int32_t slot, Entry* entry) {
      slots[position] = settle(position, slot, entry);
    };
    auto const group_found = [&](int64_t begin, int64_t end) {
      if (has_rows) writer.template prefetch<Cache::kSecond>(begin, end);
    };
    auto const part = has_rows ? ids_at_once(task.table) : chunk.end - chunk.begin;
    auto begin = chunk.begin;
    do {
      auto const end = std::min(chunk.end, begin + part);
      probe.run(begin, end, found, group_found);
      if (has_rows) writer.write(begin, end);
      begin = end;
    } while (begin < chunk.end);
  });
}

}  // namespace dynemb::cpu
