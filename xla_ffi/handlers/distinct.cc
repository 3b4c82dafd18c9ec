// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/distinct.cc: the distinct numbers of a batch of a tensor train.
#include "core/args.h"
#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/registrations.h"
#include "xla_ffi/limits.h"

namespace dynemb {
namespace {

struct Distinct {
  static constexpr auto kTarget = "dynemb_distinct";
  static constexpr auto kRun = &backend::distinct;
  static auto bind() { return dynemb::bind().Attr<int64_t>("limit").Attr<int64_t>("suffixes"); }

  DistinctArgs args{};

  void read(BufferReader& reader, int64_t limit, int64_t suffixes) {
    constexpr int64_t kMostNumbers = ~uint32_t{0};
    auto const numbers = reader.next_arg(BufferRule::kNumbers);
    if (!reader.expect(limit >= 0 && limit <= kMostNumbers,
                       "attribute 'limit' must be below 2^32") ||
        !reader.expect(suffixes >= 1 && suffixes <= kMostNumbers,
                       "attribute 'suffixes' must be at least 1 and below 2^32")) {
      return;
    }
    args.numbers = data<uint32_t>(numbers);
    args.num_ids = dimension(numbers, 0);
    args.limit = static_cast<uint32_t>(limit);
    args.num_suffixes = static_cast<uint32_t>(suffixes);
    args.values = data<uint32_t>(reader.next_ret(BufferRule::kNumbers));
    args.inverse = data<int32_t>(reader.next_ret(BufferRule::kInverse));
    args.ranks = data<int32_t>(reader.next_ret(BufferRule::kRanks));
    args.positions = data<int32_t>(reader.next_ret(BufferRule::kPositions));
    args.count = data<int32_t>(reader.next_ret(BufferRule::kCount));
    auto const starts = reader.next_ret(BufferRule::kStarts);
    args.starts = data<int32_t>(starts);
    args.num_prefixes = dimension(starts, 0) - 1;
    args.of_suffix = data<int32_t>(reader.next_ret(BufferRule::kOfSuffix));
    reader.expect(args.num_ids <= kMostIds, "a call has at most 2^30 - 1 ids");
  }

  // The call has the ids {numbers, limit}.
  static size_t scratch_bytes(CallShape const& shape) {
    if (shape.ids.size() != 2) return 0;
    DistinctArgs args{};
    args.num_ids = shape.ids[0];
    args.limit = static_cast<uint32_t>(shape.ids[1]);
    return backend::distinct_scratch_bytes(args);
  }
};

}  // namespace

Registration distinct_registration() { return registration_of<Distinct>(); }

}  // namespace dynemb
