// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/pair_rows.cc: rows that are products of two factors, and their gradients.
#include "core/args.h"
#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/registrations.h"
#include "xla_ffi/limits.h"

namespace dynemb {
namespace {

auto bind_pairs() { return bind().Attr<int64_t>("rank").Attr<int64_t>("exact"); }

// What both calls begin with.
template <class Args>
void read_factors(BufferReader& reader, Args& args, int64_t rank, int64_t exact) {
  auto const prefix = reader.next_arg(BufferRule::kPrefix);
  auto const suffix = reader.next_arg(BufferRule::kSuffix);
  auto& sizes = reader.sizes();
  auto const fits = !reader.failed() && rank > 0 && sizes.get(kPrefixWidth) % rank == 0 &&
                    sizes.get(kSuffixWidth) % rank == 0;
  if (!reader.expect(fits, "attribute 'rank' must divide the widths of both factors")) return;
  auto const m = sizes.get(kPrefixWidth) / rank, n = sizes.get(kSuffixWidth) / rank;
  if (!reader.expect(m * n <= kMostInt32, "a row must have at most 2^31 - 1 columns")) return;
  sizes.set(kNumStarts, sizes.get(kNumPrefixes) + 1);
  sizes.set(kPairWidth, m * n);
  auto const starts = reader.next_arg(BufferRule::kStarts);
  auto const of_suffix = reader.next_arg(BufferRule::kOfSuffix);
  args.prefix = data<float>(prefix);
  args.suffix = data<float>(suffix);
  args.shape = {sizes.get(kNumPrefixes), sizes.get(kNumSuffixes),    dimension(of_suffix, 0),
                static_cast<int32_t>(m), static_cast<int32_t>(rank), static_cast<int32_t>(n),
                exact != 0 ? 1 : 0,      data<int32_t>(starts),      data<int32_t>(of_suffix)};
}

struct PairRows {
  static constexpr auto kTarget = "dynemb_pair_rows";
  static constexpr auto kRun = &backend::pair_rows;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_pairs(); }

  PairRowsArgs args{};

  void read(BufferReader& reader, int64_t rank, int64_t exact) {
    read_factors(reader, args, rank, exact);
    args.rows = data<float>(reader.next_ret(BufferRule::kPairRows));
  }
};

struct PairGradients {
  static constexpr auto kTarget = "dynemb_pair_gradients";
  static constexpr auto kRun = &backend::pair_gradients;
  static auto bind() { return bind_pairs(); }

  PairGradientsArgs args{};

  void read(BufferReader& reader, int64_t rank, int64_t exact) {
    read_factors(reader, args, rank, exact);
    args.d_rows = data<float>(reader.next_arg(BufferRule::kPairRows));
    args.d_prefix = data<float>(reader.next_ret(BufferRule::kPrefix));
    args.d_suffix = data<float>(reader.next_ret(BufferRule::kSuffix));
  }

  // Of a call with ids {suffixes, numbers in a suffix, rows}.
  static size_t scratch_bytes(CallShape const& shape) {
    if (shape.ids.size() != 3) return 0;
    PairGradientsArgs args{};
    args.shape.num_suffixes = shape.ids[0];
    args.shape.k = 1;
    args.shape.n = static_cast<int32_t>(shape.ids[1]);
    args.shape.num_rows = shape.ids[2];
    return backend::pair_gradients_scratch_bytes(args);
  }
};

}  // namespace

Registration pair_rows_registration() { return registration_of<PairRows>(); }

Registration pair_gradients_registration() { return registration_of<PairGradients>(); }

}  // namespace dynemb
