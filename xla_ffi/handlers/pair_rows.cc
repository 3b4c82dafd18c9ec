// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/pair_rows.cc: rows that are products of two factors, and their gradients.
#include "core/pair_rows.h"

#include "core/args.h"
#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/registrations.h"
#include "xla_ffi/limits.h"

namespace dynemb {
namespace {

auto bind_pairs() {
  return bind()
      .Attr<int64_t>("rank")
      .Attr<int64_t>("segments")
      .Attr<int64_t>("inner")
      .Attr<int64_t>("exact");
}

// Prefixes lie in `segments` parts each, and those of `inner` prefixes side by side.
struct PairAttributes {
  int64_t rank, segments, inner, exact;
};

bool is_bfloat16(ffi::AnyBuffer const& buffer) {
  return value_type_of(buffer) == ValueType::kBFloat16;
}

// Both calls begin with the same factors.
template <class Args>
void read_factors(BufferReader& reader, Args& args, PairAttributes const& given) {
  auto const prefix = reader.next_arg(BufferRule::kPrefix);
  auto const suffix = reader.next_arg(BufferRule::kSuffix);
  if (reader.failed()) return;
  auto& sizes = reader.sizes();
  auto const [rank, segments, inner, exact] = given;
  auto const inner_width = sizes.get(kPrefixWidth), suffix_width = sizes.get(kSuffixWidth);
  auto const divides = rank > 0 && inner_width > 0 && inner_width % rank == 0 && suffix_width > 0 &&
                       suffix_width % rank == 0;
  if (!reader.expect(divides, "attribute 'rank' must divide the widths of both factors")) return;
  auto const all = sizes.get(kNumSegments);
  auto const fits = segments > 0 && inner > 0 && all % segments == 0 && all / segments % inner == 0;
  if (!reader.expect(fits, "attributes 'segments' and 'inner' must divide the prefixes")) return;
  auto const inner_m = inner_width / rank, n = suffix_width / rank, prefixes = all / segments;
  auto const small = rank <= kMostInt32 && inner_m <= kMostInt32 && segments <= kMostInt32 &&
                     n <= kMostInt32 && inner_m * segments <= kMostInt32 &&
                     inner_m * segments <= kMostInt32 / n;
  if (!reader.expect(small, "a row must have at most 2^31 - 1 columns")) return;
  if (!reader.expect(prefixes <= kMostInt32, "there must be at most 2^31 - 1 prefixes")) return;
  auto const m = inner_m * segments;
  sizes.set(kNumStarts, prefixes + 1);
  sizes.set(kPairWidth, m * n);
  auto const starts = reader.next_arg(BufferRule::kStarts);
  auto const of_suffix = reader.next_arg(BufferRule::kOfSuffix);
  if (reader.failed()) return;
  auto const rows = dimension(of_suffix, 0);
  // A prefix may have all rows, and their columns are counted.
  auto const counted = rows <= kMostIds / n;
  if (!reader.expect(counted, "the suffixes of all rows must have below 2^30 columns")) return;
  args.prefix = static_cast<float const*>(prefix.untyped_data());
  args.suffix = static_cast<float const*>(suffix.untyped_data());
  args.shape = {prefixes,
                sizes.get(kNumSuffixes),
                rows,
                static_cast<int32_t>(m),
                static_cast<int32_t>(rank),
                static_cast<int32_t>(n),
                inner,
                static_cast<int32_t>(segments),
                static_cast<int32_t>(inner_m),
                is_bfloat16(prefix) ? kHalfFactors
                : exact != 0        ? 1
                                    : 0,
                data<int32_t>(starts),
                data<int32_t>(of_suffix)};
  reader.expect(is_bfloat16(suffix) == is_bfloat16(prefix), "both factors must have one type");
  reader.expect(!is_half(args.shape) || may_be_half(args.shape),
                "factors of bfloat16 must have 16 rows, rank 32 or 64, 4 or 8 columns and at most "
                "2048 suffixes");
}

// Gradients and rows have the type of their prefixes, which the shape tells.
template <class Args>
float* pair_data(BufferReader& reader, Args const& args, ffi::AnyBuffer const& buffer) {
  reader.expect(is_bfloat16(buffer) == is_half(args.shape),
                "prefixes, rows and their gradients must have one type");
  return static_cast<float*>(buffer.untyped_data());
}

struct PairRows {
  static constexpr auto kTarget = "dynemb_pair_rows";
  static constexpr auto kRun = &backend::pair_rows;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_pairs(); }

  PairRowsArgs args{};

  void read(BufferReader& reader, int64_t rank, int64_t segments, int64_t inner, int64_t exact) {
    read_factors(reader, args, {rank, segments, inner, exact});
    args.rows = pair_data(reader, args, reader.next_ret(BufferRule::kPairRows));
  }
};

struct PairGradients {
  static constexpr auto kTarget = "dynemb_pair_gradients";
  static constexpr auto kRun = &backend::pair_gradients;
  static auto bind() { return bind_pairs(); }

  PairGradientsArgs args{};

  void read(BufferReader& reader, int64_t rank, int64_t segments, int64_t inner, int64_t exact) {
    read_factors(reader, args, {rank, segments, inner, exact});
    args.d_rows = pair_data(reader, args, reader.next_arg(BufferRule::kPairRows));
    args.d_prefix = pair_data(reader, args, reader.next_ret(BufferRule::kPrefix));
    auto const d_suffix = reader.next_ret(BufferRule::kSuffix);
    reader.expect(!is_bfloat16(d_suffix), "gradients of suffixes must be float32");
    args.d_suffix = static_cast<float*>(d_suffix.untyped_data());
  }

  // Of a call with ids {prefixes, suffixes, m, k, n, rows}.
  static size_t scratch_bytes(CallShape const& shape) {
    if (shape.ids.size() != 6) return 0;
    PairGradientsArgs args{};
    args.shape.num_prefixes = shape.ids[0];
    args.shape.num_suffixes = shape.ids[1];
    args.shape.m = static_cast<int32_t>(shape.ids[2]);
    args.shape.k = static_cast<int32_t>(shape.ids[3]);
    args.shape.n = static_cast<int32_t>(shape.ids[4]);
    args.shape.num_rows = shape.ids[5];
    return backend::pair_gradients_scratch_bytes(args);
  }
};

}  // namespace

Registration pair_rows_registration() { return registration_of<PairRows>(); }

Registration pair_gradients_registration() { return registration_of<PairGradients>(); }

}  // namespace dynemb
