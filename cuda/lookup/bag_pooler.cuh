// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/bag_pooler.cuh: a warp probes the ids of its bags; then each tile of its lanes sums
// the rows of a bag at a time.
//
// With rows mostly in the caches the sum is bound by the instructions that a row takes, so the
// inner loop has few: slots lie in shared memory, whatever is rare is left to a second look.
#pragma once

#include <cstdint>

#include "cuda/lookup/row_copier.cuh"

namespace dynemb::cuda {

constexpr int kCachedSlots = 128;  // of the bags of a warp; the others are read back

// A tile that pools has so many rows in flight: for more there are no registers, of which packed
// ones take fewer. Weights and initial rows take some too.
template <class In, bool kPlain>
constexpr int kPooledInFlight = !kIsPacked<In> ? 5
                                : kPlain       ? 10
                                               : 6;

// Quads of a lane that pools. Those of packed rows are a word each, and rows begin at any word. So
// the quads of a lane lie a step of the tile apart, and lanes side by side read words side by side.
template <class In>
constexpr int kPooledQuads = kIsPacked<In> ? 2 : kQuadsOfWord<In>;

// A sum over bags of one id each, without weights, is the row itself.
__host__ __device__ __forceinline__ bool pools(FeatureRef const& feature) {
  if (feature.pooling == Pooling::kMean) return true;
  return feature.pooling == Pooling::kSum && (feature.bag_size != 1 || feature.weights != nullptr);
}

// Each warp has one in shared memory.
struct BagCache {
  int32_t slots[kCachedSlots];
  float factors[kCachedSlots];  // of the first bags: 1 / ids, padding left out (kMean only)
  int32_t num_ids;              // of all bags
};

// Rows is a RowCopier.
template <class Rows>
struct BagPooler {
  static constexpr int kIds = Rows::kPooledIds;  // of a lane
  static constexpr int kQuads = kPooledQuads<typename Rows::Stored>;
  static constexpr bool kScaled = kIsPacked<typename Rows::Stored>;

  Rows rows;
  BagCache& cache;
  int64_t first_bag;
  int32_t begin;  // position of the first id; ids of a warp's bags are counted from here

  __device__ __forceinline__ int32_t end_of(int64_t bag) const {
    return counted_from_begin(bag_range(rows.here.feature, bag).end);
  }

  __device__ __forceinline__ int32_t begin_of(int64_t bag) const {
    return counted_from_begin(bag_range(rows.here.feature, bag).begin);
  }

  // Never past the ids that the warp has probed, whatever the offsets are (core/feature_ref.h).
  __device__ __forceinline__ int32_t counted_from_begin(int64_t position) const {
    auto const index = position - begin;
    if (rows.here.feature.bag_size > 0) return static_cast<int32_t>(index);
    return static_cast<int32_t>(min(max(index, int64_t{0}), int64_t{cache.num_ids}));
  }

  // The same of up to kProbed ids for each lane, from `base` on; whether one of this lane's has
  // none.
  template <int kProbed>
  __device__ __forceinline__ bool probe_some(int32_t base, int32_t end, bool draws) const {
    Probed ids[kProbed];
    rows.ids.probe(rows.here, base, end, draws, ids);
    auto missing = false;
#pragma unroll
    for (int i = 0; i < kProbed; ++i) {
      auto const index = base + i * 32 + lane_id() - begin;
      if (index < kCachedSlots) cache.slots[index] = ids[i].slot;
      missing |= ids[i].slot < kPaddingSlot;
      rows.ids.touch(rows.here, ids[i], base + i * 32 + lane_id());
    }
    return missing;
  }

  // Returns whether any id has no row.
  __device__ __forceinline__ bool probe(int32_t end) const {
    auto missing = false;
    // Else it is not known later which id fills a slot.
    auto const draws = end - begin <= kCachedSlots;
#pragma unroll 1
    for (auto base = begin; base < end; base += 32 * kIds) {
      if (kIds > 1 && end - base > 32) {
        missing |= probe_some<kIds>(base, end, draws);
      } else {
        missing |= probe_some<1>(base, end, draws);
      }
    }
    return __any_sync(kFullWarp, missing);
  }

  __device__ __forceinline__ float mean_factor(int32_t const* slots, int64_t bag) const {
    int32_t count = 0;
    auto const end = end_of(bag);
    for (auto index = begin_of(bag); index < end; ++index) {
      count += slots[index] == kPaddingSlot ? 0 : 1;
    }
    return count == 0 ? 0.0f : 1.0f / static_cast<float>(count);
  }

  // Each bag has a lane.
  __device__ __forceinline__ void find_factors(int32_t const* slots, int64_t last_bag) const {
    auto* const scale = rows.here.feature.scale;
    for (auto bag = first_bag + lane_id(); bag < last_bag; bag += 32) {
      auto const factor = mean_factor(slots, bag);
      if (bag - first_bag < kCachedSlots) cache.factors[bag - first_bag] = factor;
      if (scale != nullptr) scale[bag] = factor;
    }
    __syncwarp();
  }

  __device__ __forceinline__ float factor_of(int32_t const* slots, int64_t bag) const {
    if (rows.here.feature.pooling != Pooling::kMean) return 1.0f;
    auto const index = bag - first_bag;
    return index < kCachedSlots ? cache.factors[index] : mean_factor(slots, bag);
  }

  // Returns the columns from one quad of a lane to its next.
  __device__ __forceinline__ static int32_t quad_step(RowTile const& tile) {
    return kScaled ? tile.step() : 4;
  }

  // Points into row 0 of the table.
  __device__ __forceinline__ char const* column_pointer(int32_t column) const {
    return stored_column(rows.in, rows.here.table.values, column);
  }

  // Holds the rows of one bag, in the columns of a lane.
  struct Stream {
    char const* columns;   // of row 0
    uint32_t row_bytes;    //
    int32_t columns_left;  // from these on
    int32_t quad_step;     // columns from one quad to the next
    int32_t const* slots;  // the next id's
    float const* weights;  // the next id's, if there are any
    float4 sum[kQuads];
  };

  // The quads of a lane in one row, if `wanted`; zeros past its last column.
  __device__ __forceinline__ RawQuad load_quads(bool wanted, char const* row,
                                                Stream const& stream) const {
    if constexpr (!kScaled) {
      return load_word_if(wanted, rows.in, row, stream.columns_left);
    } else {
      RawQuad words{{0, 0, 0, 0}};
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        auto const column = q * stream.quad_step;
        auto const there = wanted && column < stream.columns_left;
        auto const* const from = row + code_bytes(rows.in, column);
        words.word[q] = load_quad_if(there, rows.in, from, 0, 0).word[0];
      }
      return words;
    }
  }

  __device__ __forceinline__ float4 quad_of(RawQuad const& words, int q) const {
    if constexpr (kScaled) return to_floats(rows.in, RawQuad{{words.word[q], 0, 0, 0}});
    return to_floats(rows.in, words, q);
  }

  // kRows rows, or the first `count` of them. Ids without a row add nothing: also their
  // weight, since 0 times infinity is not 0. All loads before the first sum: no branch, and one
  // instruction for an address.
  template <int kRows, bool kAll, bool kWeighted>
  __device__ __forceinline__ void add(Stream& stream, int32_t count) const {
    int32_t slot[kRows];
    RawQuad word[kRows];
    constexpr bool kFactors = kWeighted || kScaled;
    float factor[kFactors ? kRows : 1];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      slot[r] = kAll || r < count ? stream.slots[r] : kPaddingSlot;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      auto const* const row =
          nth_row(stream.columns, static_cast<uint32_t>(slot[r]), stream.row_bytes);
      word[r] = load_quads(slot[r] >= 0, row, stream);
      if constexpr (kWeighted) factor[r] = slot[r] >= 0 ? stream.weights[r] : 0.0f;
      if constexpr (kScaled) {
        auto const scale =
            load_scale_if(slot[r] >= 0, rows.here.table.values, slot[r], stream.row_bytes);
        factor[r] = kWeighted ? factor[r] * scale : scale;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        add_scaled(stream.sum[q], kFactors ? factor[kFactors ? r : 0] : 1.0f, quad_of(word[r], q));
      }
    }
    stream.slots += kRows;
    if constexpr (kWeighted) stream.weights += kRows;
  }

  template <bool kPlain, bool kWeighted>
  __device__ __forceinline__ void sum_rows(Stream& stream, int32_t count) const {
    constexpr auto kRows = kPooledInFlight<typename Rows::Stored, kPlain>;
#pragma unroll 1
    for (; count >= kRows; count -= kRows) add<kRows, true, kWeighted>(stream, count);
    if (count > 0) add<kRows, false, kWeighted>(stream, count);
  }

  // The initial rows of the ids of a bag that have none.
  __device__ __forceinline__ void add_missing(int32_t const* slots, int64_t bag, int32_t column,
                                              int32_t step, float4 (&sum)[kQuads]) const {
    auto const& feature = rows.here.feature;
    auto const end = end_of(bag);
    for (auto index = begin_of(bag); index < end; ++index) {
      if (slots[index] >= kPaddingSlot) continue;
      auto const position = begin + index;
      Key const key[1] = {load_key(feature.ids, feature.id_type, position)};
      auto const weight = weight_of(feature, position);
      auto const fills = Rows::kTrains && slots == cache.slots;
      auto const slot = fills ? slot_to_fill(slots[index]) : kRefusedSlot;
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        float4 values[1];
        // Made for each id: what it holds would take registers from the loop above.
        rows.drawer().draw(rows.in, key, column + q * step, values);
        add_scaled(sum[q], weight, values[0]);
        if (slot >= 0) rows.fill(slot, column + q * step, values[0]);
      }
    }
  }

  // `end`: after the last id of the bags.
  __device__ __forceinline__ void run(int64_t last_bag, int32_t end) const {
    if (lane_id() == 0) cache.num_ids = end - begin;
    auto const missing = probe(end);
    __syncwarp();
    auto const& feature = rows.here.feature;
    auto const cached = end - begin <= kCachedSlots;
    auto const* const slots = cached ? cache.slots : feature.slots + begin;
    if (feature.pooling == Pooling::kMean) find_factors(slots, last_bag);
    auto const bags = static_cast<int32_t>(last_bag - first_bag);
    if (cached && !missing && feature.weights == nullptr) {
      pool<true>(bags, cache.slots);
    } else if constexpr (kScaled) {
      pool_apart(*this, bags, slots);
    } else {
      pool<false>(bags, slots);
    }
  }

  // Out of line: beside it the plain bags of packed rows would keep registers in memory. By value:
  // for an address all warps would write the pooler to memory, and few make this call.
  static __device__ __noinline__ void pool_apart(BagPooler const pooler, int32_t bags,
                                                 int32_t const* slots) {
    pooler.pool<false>(bags, slots);
  }

  // kPlain: slots are in the cache, all ids have rows, none has a weight, as in most warps. What
  // the other bags need would take registers from rows in flight.
  template <bool kPlain>
  __device__ __forceinline__ void pool(int32_t bags, int32_t const* slots) const {
    auto const dim = rows.here.table.dim;
    auto const tile = RowTile::of_row((dim + kQuads - 1) / kQuads);
    auto const first = tile.first_column() * (kScaled ? 1 : kQuads);
    for (auto c = first; c < dim; c += tile.step() * kQuads) {
      for (auto index = tile.index; index < bags; index += tile.per_warp) {
        pool_bag<kPlain>(first_bag + index, slots, c, quad_step(tile));
      }
    }
  }

  template <bool kPlain>
  __device__ __forceinline__ void pool_bag(int64_t bag, int32_t const* slots, int32_t column,
                                           int32_t step) const {
    auto const& feature = rows.here.feature;
    auto const dim = rows.here.table.dim;
    auto const row_bytes = stored_row_bytes(rows.in, dim);
    auto const first = begin_of(bag), count = end_of(bag) - first;
    auto stream =
        Stream{column_pointer(column), row_bytes, dim - column, step, slots + first, nullptr, {}};
    if (kPlain || feature.weights == nullptr) {
      sum_rows<kPlain, false>(stream, count);
    } else {
      stream.weights = feature.weights + begin + first;
      sum_rows<kPlain, true>(stream, count);
    }
    if constexpr (!kPlain) add_missing(slots, bag, column, step, stream.sum);
    auto const factor = factor_of(slots, bag);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) stream.sum[q] = scaled(factor, stream.sum[q]);
    if constexpr (kScaled) {
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        if (q * step < stream.columns_left) rows.store(bag, column + q * step, {stream.sum[q]});
      }
    } else {
      rows.store(bag, column, stream.sum);
    }
  }
};

// ---- host ---------------------------------------------------------------------------------------

// From so many ids of a call on a warp may have twice as many, and there still are enough warps
// that the last ones do not count.
constexpr int64_t kManyIds = int64_t{1} << 21;

// Of fewer warps than this, a kernel that touches rows has too few loads under way: it waits
// several times for those of an id before it sums. One that does not needs only a warp for each
// place on the device, of which there are some 4,000.
template <class Ids>
constexpr int64_t kEnoughWarps = Ids::kTrains ? 10'000 : 4'000;

// Bags of a warp: about 32 ids for each of its tiles, or as many as Ids prefers where ids are many,
// as long as their slots fit the cache. Fewer, where else too few warps had any. quads: of a lane.
template <class Ids>
int32_t bags_per_warp(FeatureRef const& feature, TableRef const& table, int32_t quads,
                      int64_t total_ids) {
  auto const tiles = 32 / lanes_of_row((table.dim + quads - 1) / quads);
  auto const ids_of_bag = std::max<int64_t>(
      1, feature.bag_size > 0 ? feature.bag_size
                              : feature.num_ids / std::max<int64_t>(1, feature.num_bags));
  auto const many = total_ids >= kManyIds;
  auto const ids = std::min(many ? Ids::ids_of_bags(tiles) : 32 * tiles, kCachedSlots);
  auto const has_few_warps = [&](int64_t bags) {
    return total_ids < kEnoughWarps<Ids> * bags * ids_of_bag;
  };
  auto of_tile = std::max<int64_t>(1, ids / (ids_of_bag * tiles));
  while (Ids::kTrains && of_tile > 1 && has_few_warps(of_tile * tiles)) --of_tile;
  auto const bags = of_tile * tiles;
  if (bags * ids_of_bag <= kCachedSlots || !has_few_warps(bags)) return static_cast<int32_t>(bags);
  return static_cast<int32_t>(std::max<int64_t>(1, kCachedSlots / ids_of_bag));
}

}  // namespace dynemb::cuda
