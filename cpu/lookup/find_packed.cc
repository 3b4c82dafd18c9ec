// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/lookup/find_packed.cc: serving lookup in tables whose rows are packed; changes nothing.
#include "core/find.h"
#include "cpu/lookup/packed_writer.h"
#include "cpu/lookup/probe_rows.h"
#include "cpu/loops/huge_pages.h"
#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

// Rows of a chunk that the second cache has room for, beside the index.
constexpr int64_t kRowsAheadBytes = int64_t{256} << 10;

void prefer_pages(TableRef const& table, RowCode code) {
  auto const rows = size_t(table.local_buckets) * kBucketCapacity;
  prefer_huge_pages(table.index, size_t(table.local_buckets * bucket_bytes(table.policy)));
  prefer_huge_pages(table.values, rows * size_t(packed_row_bytes(code, table.dim)));
}

template <RowCode code>
void find_chunk(FindPackedArgs const& args, FeatureChunk const& chunk, bool streams) {
  auto const& feature = args.features[chunk.feature];
  auto const& table = args.tables[feature.table];
  with_isa([&](auto isa) {
    constexpr auto kIsa = decltype(isa)::value;
    Probe<kIsa> probe(table, feature);
    PackedWriter<kIsa, code> writer(table, feature, streams);
    auto const bytes = (chunk.end - chunk.begin) * packed_row_bytes(code, table.dim);
    auto const prefetches = chunk.first_bag < chunk.end_bag && bytes <= kRowsAheadBytes;
    auto const found = [&](int64_t position, int32_t slot, Entry*) {
      feature.slots[position] = slot_to_read(slot);
    };
    auto const group_found = [&](int64_t begin, int64_t end) {
      if (prefetches) writer.template prefetch<Cache::kSecond>(begin, end);
    };
    probe.run(chunk.begin, chunk.end, found, group_found);
    writer.write(chunk);
  });
  if (streams) end_streams();
}

}  // namespace

void find_packed(FindPackedArgs const& args, ThreadPool const& all) {
  auto const& pool = threads_for(args.features, args.num_features, all);
  auto const streams = streams_rows(args);
  for (int32_t t = 0; t < args.num_tables; ++t) prefer_pages(args.tables[t], args.code);
  auto const chunks = cut_bags(args.features, args.num_features, kIdsPerChunk);
  with_row_code(args.code, [&](auto code) {
    for_each(pool, chunks, [&](int64_t, FeatureChunk const& chunk) {
      find_chunk<decltype(code)::value>(args, chunk, streams);
    });
  });
}

}  // namespace dynemb::cpu
