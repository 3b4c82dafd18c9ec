// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/export_batch.cc: the live rows of a range of buckets.
#include "core/args.h"
#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/registrations.h"

namespace dynemb {
namespace {

struct ExportBatch {
  static constexpr auto kTarget = "dynemb_export_batch";
  static constexpr auto kRun = &backend::export_batch;
  static auto bind() { return bind_table(); }

  ExportArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs) {
    if (!is_one_table(reader, attrs)) return;
    read_tables(reader, attrs, {false, false, false}, false, 1, &args.table);
    args.first_bucket = data<int32_t>(reader.next_arg(BufferRule::kFirstBucket));
    args.min_score = data<uint64_t>(reader.next_arg(BufferRule::kMinScore));
    args.keys = data<uint64_t>(reader.next_ret(BufferRule::kKeys));
    args.scores = data<uint64_t>(reader.next_ret(BufferRule::kScores));
    auto const slots = reader.next_ret(BufferRule::kExportedSlots);
    auto const room = static_cast<int64_t>(slots.element_count());
    args.slots = data<int32_t>(slots);
    args.num_buckets = room / kBucketCapacity;
    reader.expect(args.num_buckets * kBucketCapacity == room,
                  "there must be room for the rows of whole buckets");
    args.count = data<int32_t>(reader.next_ret(BufferRule::kCount));
  }

  static size_t scratch_bytes(CallShape const& shape) {
    ExportArgs args{};
    args.num_buckets = shape.buckets.at(0);
    return backend::export_batch_scratch_bytes(args);
  }
};

}  // namespace

Registration export_batch_registration() { return registration_of<ExportBatch>(); }

}  // namespace dynemb
