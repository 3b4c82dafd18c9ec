// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/probe_rows.cuh: from ids to rows in one kernel, which is the first of its operation:
// blocks of their own do what that begins with (cuda/grid/prologue.cuh).
#pragma once

#include <cstdint>

#include "cuda/grid/call.cuh"
#include "cuda/grid/prologue.cuh"
#include "cuda/lookup/bag_pooler.cuh"
#include "cuda/lookup/row_copier.cuh"

namespace dynemb::cuda {

// The items of one warp: ids `first` on, or bags where the feature pools.
struct WarpShare {
  int64_t warp;  // of the feature
  int64_t num_warps;
  int64_t first, last;
};

template <class Ids>
__device__ __forceinline__ void probe_only(Here const& here, Ids const& ids, int64_t first,
                                           int64_t last) {
  Probed probed[1];
  ids.probe(here, first, last, false, probed);
  ids.touch(here, probed[0], first + lane_id());
}

template <class Rows>
__device__ __forceinline__ void pool_of_warp(Rows const& rows, WarpShare const& share,
                                             BagCache* cache) {
  auto const& feature = rows.here.feature;
  auto const all = BagRange{0, feature.num_ids};
  if (share.first < share.last) {
    auto const [begin, end] = within(
        {bag_range(feature, share.first).begin, bag_range(feature, share.last - 1).end}, all);
    BagPooler<Rows>{rows, *cache, share.first, static_cast<int32_t>(begin)}.run(
        share.last, static_cast<int32_t>(end));
  }
  if (feature.bag_size > 0) return;
  // Positions after the last bag, shared out among the warps.
  auto const after = end_of_bags(feature) + share.warp * 32;
  for (auto base = after; base < feature.num_ids; base += share.num_warps * 32) {
    rows.ids.skip(rows.here, base + lane_id());
  }
}

template <bool kPools, class In, class Out, class Ids>
__device__ __forceinline__ void rows_of_warp(In in, Out out, Here const& here, Ids const& ids,
                                             WarpShare const& share, BagCache* cache) {
  auto const rows = RowCopier<In, Out, Ids, kPools ? 1 : 2>{in, out, here, ids};
  auto const& feature = here.feature;
  if (!kPools || !pools(feature)) {
    rows.copy(static_cast<int32_t>(share.first),
              static_cast<int32_t>(max(share.last - share.first, int64_t{0})));
    return;
  }
  if constexpr (kPools) pool_of_warp(rows, share, cache);
}

// A multiprocessor has so many warps. Where packed rows are pooled fewer leave registers for ten
// rows in flight, with hardly any in memory.
template <class Formats, bool kPools>
constexpr int kWarpsAtOnce = Formats::kPacked && kPools ? 28 : 32;

template <class Size, class Ids>
struct RowsCall {
  Prologue<Size, typename Ids::Begin> prologue;
  uint32_t prologue_blocks;  // the first ones
  Ids ids;
};

// Out of line: inlined, it takes registers from the rows.
template <class Size, class Op>
__device__ __noinline__ void prologue_apart(Prologue<Size, Op> const& p, Share const blocks,
                                            CounterRows (&own)[Size::tables]) {
  run_prologue(p, blocks, own);
}

// kPools: some feature pools.
template <class Formats, bool kPools, class Size, class Ids>
__global__ void __launch_bounds__(Ids::kBlock, kWarpsAtOnce<Formats, kPools> * 32 / Ids::kBlock)
    rows_kernel(__grid_constant__ RowsCall<Size, Ids> const p) {
  constexpr int kWarps = Ids::kBlock / 32;
  __shared__ BagCache caches[kPools ? kWarps : 1];
  __shared__ int32_t touched[kThreads];
  if constexpr (Ids::kTrains) {
    __shared__ CounterRows own[Size::tables];
    if (blockIdx.x < p.prologue_blocks) {
      auto const rank = static_cast<int32_t>(blockIdx.x);
      return prologue_apart(p.prologue, Share{rank, static_cast<int32_t>(p.prologue_blocks)}, own);
    }
    static_assert(Ids::kBlock == kThreads, "a thread clears an entry");
    touched[threadIdx.x] = kMissingSlot;
    __syncthreads();
  }
  auto const& call = p.prologue.call;
  auto const block = blockIdx.x - (Ids::kTrains ? p.prologue_blocks : 0);
  auto const f = feature_of_block(call, block);
  auto const& feature = call.features[f];
  auto const& table = call.tables[feature.table];
  auto const here = Here{table, feature, f, touched};
  auto const warp_in_block = static_cast<int32_t>(threadIdx.x / 32);
  auto* const cache = caches + (kPools ? warp_in_block : 0);

  auto const items = pools(feature) ? feature.num_bags : feature.num_ids;
  WarpShare share;
  share.warp = int64_t{block - call.first_block[f]} * kWarps + warp_in_block;
  share.num_warps = int64_t{call.first_block[f + 1] - call.first_block[f]} * kWarps;
  share.first = share.warp * call.items_per_warp[f];
  share.last = min(share.first + call.items_per_warp[f], items);

  if (feature.pooling == Pooling::kNoRows) {
    if (share.first < share.last) probe_only(here, p.ids, share.first, share.last);
  } else if constexpr (Formats::kPacked) {
    auto const out = AnyFormat{feature.row_type, moves_vectors(feature.rows, table.dim)};
    rows_of_warp<kPools>(Formats::stored_format(table), out, here, p.ids, share, cache);
  } else if constexpr (Formats::kKnown) {
    using Stored = typename Formats::Stored;
    using Row = typename Formats::Row;
    rows_of_warp<kPools>(Stored{}, Row{}, here, p.ids, share, cache);
  } else {
    auto const out = AnyFormat{feature.row_type, moves_vectors(feature.rows, table.dim)};
    rows_of_warp<kPools>(value_format(table), out, here, p.ids, share, cache);
  }
}

// ---- host ---------------------------------------------------------------------------------------

// Do all tables and rows have these formats?
template <class Formats>
bool has_formats(LookupArgs const& args) {
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto const& feature = args.features[f];
    auto const& table = args.tables[feature.table];
    if (feature.pooling == Pooling::kNoRows) continue;
    if (!is_format<typename Formats::Stored>(table.value_type, table.values, table.dim) ||
        !is_format<typename Formats::Row>(feature.row_type, feature.rows, table.dim) ||
        (pools(feature) && table.dim % (4 * kQuadsOfWord<typename Formats::Stored>) != 0)) {
      return false;
    }
  }
  return true;
}

inline bool pools_any(LookupArgs const& args) {
  return std::any_of(args.features, args.features + args.num_features, pools);
}

template <class Formats, class Size, class Ids>
cudaError_t launch_rows(LookupArgs const& args, RowsCall<Size, Ids> const& p, int64_t blocks,
                        cudaStream_t stream) {
  auto const kernel = pools_any(args) ? rows_kernel<Formats, true, Size, Ids>
                                      : rows_kernel<Formats, false, Size, Ids>;
  return launch(kernel, blocks, stream, p, 0, Ids::kBlock);
}

inline int32_t pooled_quads(TableRef const& table) {
  constexpr auto kHalf = ValueType::kBFloat16;
  constexpr auto kQuads = kPooledQuads<Vectors<kHalf>>;
  return table.value_type == kHalf && table.dim % (4 * kQuads) == 0 ? kQuads : 1;
}

// Returns the blocks of the kernel. quads_of(table): quads of a lane that pools.
template <class Size, class Ids, class QuadsOf>
int64_t fill_rows_call(LookupArgs const& args, CallView const& view,
                       typename Ids::Begin const& begin, Ids const& ids, QuadsOf const& quads_of,
                       RowsCall<Size, Ids>* call) {
  auto& p = *call;
  auto const per_warp = items_per_warp(total_ids(args));
  auto const cut = [&](FeatureRef const& feature) -> Cut {
    if (!pools(feature)) return {feature.num_ids, per_warp};
    // At least one warp where there are ids after the last bag.
    auto const least = feature.num_ids > 0 ? int64_t{1} : int64_t{0};
    auto const& table = args.tables[feature.table];
    return {std::max(feature.num_bags, least),
            bags_per_warp<Ids>(feature, table, quads_of(table), total_ids(args))};
  };
  p.prologue_blocks = ids.begins() ? static_cast<uint32_t>(prologue_blocks(args)) : 0;
  auto const blocks =
      p.prologue_blocks + fill_prologue(args, cut, view, begin, &p.prologue, Ids::kBlock / 32);
  p.ids = ids;
  return blocks;
}

// Bags of rows of which some are no whole words; without bags the formats before this fit.
template <class Size, class Ids>
cudaError_t launch_pooled_quads(LookupArgs const& args, RowsCall<Size, Ids> const& p,
                                int64_t blocks, cudaStream_t stream) {
  auto const put = [&](auto formats) {
    return launch(rows_kernel<decltype(formats), true, Size, Ids>, blocks, stream, p, 0,
                  Ids::kBlock);
  };
  if (has_formats<HalfQuadFormats<ValueType::kBFloat16>>(args)) {
    return put(HalfQuadFormats<ValueType::kBFloat16>{});
  }
  if (has_formats<HalfQuadFormats<ValueType::kFloat32>>(args)) {
    return put(HalfQuadFormats<ValueType::kFloat32>{});
  }
  return put(AnyFormats{});
}

template <class Size, class Ids>
cudaError_t launch_rows(LookupArgs const& args, CallView const& view,
                        typename Ids::Begin const& begin, Ids const& ids, cudaStream_t stream) {
  RowsCall<Size, Ids> p;
  auto const blocks = fill_rows_call(args, view, begin, ids, pooled_quads, &p);
  if (blocks == 0) return cudaSuccess;
  if (has_formats<FloatFormats>(args)) return launch_rows<FloatFormats>(args, p, blocks, stream);
  if (has_formats<HalfFormats>(args)) return launch_rows<HalfFormats>(args, p, blocks, stream);
  if (has_formats<MixedFormats>(args)) return launch_rows<MixedFormats>(args, p, blocks, stream);
  if (pools_any(args)) return launch_pooled_quads(args, p, blocks, stream);
  return launch_rows<AnyFormats>(args, p, blocks, stream);
}

}  // namespace dynemb::cuda
