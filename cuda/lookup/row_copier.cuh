// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/row_copier.cuh: a warp probes its ids, one lane an id, and copies their rows, all
// lanes together.
//
// An id that is not in the table reads its initial row, also in training, where a later kernel may
// store it: what it will hold is known without waiting (core/initializer.h). So a lookup writes its
// output here, whether or not missing ids get a slot. If an id has taken an empty slot, its row is
// written to the slot too, while it is in registers. Invariant: the row of a slot with digest 0 is
// never read, and a key that takes the slot in a later kernel writes all of the row again.
//
// A template over Ids: what a probe does beyond finding the slot (see cuda/lookup/find.cu and
// cuda/lookup/lookup.cu):
//   kTrains                    ids are touched, missing ones may take slots
//   probe(here, first, last, draws, ids)   reached by all lanes; lane l gets the ids first + l,
//                              first + l + 32, ... if before `last`, else padding; writes slots.
//                              draws: initial rows of missing ids will be written here
//   touch(here, probed, position)  right after the probe, which has loaded the score with the key
//   missing(table)             the initializer of ids without a row
#pragma once

#include <cstdint>

#include "core/slot.h"
#include "cuda/grid/call.cuh"
#include "cuda/grid/initial_rows.cuh"
#include "cuda/grid/packed_format.cuh"
#include "cuda/grid/row_format.cuh"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

// Rows of a tile that copies: of packed ones a lane has fewer bytes, so it takes more.
template <class In>
constexpr int kRowsInFlight = kIsPacked<In> ? 8 : 4;

// What a block works on.
struct Here {
  TableRef const& table;
  FeatureRef const& feature;
  int32_t feature_index;
  int32_t*
      touched;  // [kThreads] shared: slots that the block has touched, see cuda/lookup/lookup.cu
};

// The ids of a lane in a warp that looks for those from `first` to `last`.
template <int kIds>
__device__ __forceinline__ void load_keys(FeatureRef const& feature, int64_t first, int64_t last,
                                          Key (&keys)[kIds]) {
#pragma unroll
  for (int i = 0; i < kIds; ++i) {
    auto const position = first + i * 32 + lane_id();
    keys[i] = position < last ? load_key(feature.ids, feature.id_type, position) : kEmptyKey;
  }
}

struct Probed {
  Key key;
  int32_t slot;  // kPaddingSlot, or below it where there is no row: pending, if the id has to write
                 // the initial row to the slot, too
};

// The slot that an id without a row fills, or a negative number.
__device__ __forceinline__ int32_t slot_to_fill(int32_t slot) {
  return is_pending(slot) ? pending(slot) : kRefusedSlot;
}

// kDrawn: how many initial rows a tile draws at a time. Two share the work on the key of the
// generator, if there are registers left.
template <class In, class Out, class Ids, int kDrawn>
struct RowCopier {
  using Stored = In;
  static constexpr bool kTrains = Ids::kTrains;
  static constexpr int kPooledIds = Ids::kPooledIds;
  static constexpr int kInFlight = kRowsInFlight<In>;

  In in;
  Out out;
  Here here;
  Ids const& ids;

  template <int kQuads>
  __device__ __forceinline__ void store(int64_t row, int32_t column,
                                        float4 const (&values)[kQuads]) const {
    auto const dim = here.table.dim;
    auto const offset = row_offset(here.feature.places, row, dim);
    store_quads<true>(out, element_pointer(out, here.feature.rows, offset), column, dim, values);
  }

  // Draws rows for ids without one.
  __device__ __forceinline__ RowDrawer drawer() const {
    return {here.table, ids.missing(here.table)};
  }

  // Four columns of the row of a slot with digest 0, which is not read yet.
  __device__ __forceinline__ void fill(int32_t slot, int32_t column, float4 const& values) const {
    if constexpr (!kIsPacked<In>) {
      auto const& table = here.table;
      auto* const row = row_pointer(in, table.values, slot, table.dim);
      store_quad<true>(in, row, column, table.dim, values);
    }
  }

  // Copies one row for each of the `count` <= 32 ids from `first` on (is_countable).
  __device__ __forceinline__ void copy(int32_t first, int32_t count) const {
    Probed probed[1];
    ids.probe(here, first, first + count, true, probed);
    auto const& id = probed[0];
    ids.touch(here, id, first + lane_id());
    auto const active = lane_id() < count;
    auto const tile = RowTile::of_row(here.table.dim);
    if (here.feature.pooling == Pooling::kUnstored) {
      // Peers read the rows of slots out of the table.
    } else if (here.feature.places.group == 0) {
      copy_found<false>(tile, first, count, id.slot);
    } else {
      copy_found<true>(tile, first, count, id.slot);
    }
    auto const missing = __ballot_sync(kFullWarp, active && id.slot < kPaddingSlot);
    if (missing != 0) write_initial(tile, first, missing, id);
  }

  // Four columns of row 0: where they are read and written.
  struct Columns {
    char const* from;
    char* to;
    uint32_t from_bytes;  // of a row
    uint32_t to_bytes;
    int32_t left;  // from these on
  };

  __device__ __forceinline__ Columns columns_at(int32_t column) const {
    auto const dim = here.table.dim;
    return {stored_column(in, here.table.values, column),
            element_pointer(out, here.feature.rows, column), stored_row_bytes(in, dim),
            static_cast<uint32_t>(dim * element_bytes(out)), dim - column};
  }

  // kGrouped: rows do not all follow each other (RowPlaces).
  template <bool kGrouped>
  __device__ __forceinline__ char* place_in(Columns const& columns, int32_t position) const {
    if constexpr (!kGrouped) {
      return nth_row(columns.to, static_cast<uint32_t>(position), columns.to_bytes);
    }
    auto const offset = row_offset(here.feature.places, position, here.table.dim);
    return element_pointer(out, columns.to, offset);
  }

  // The rows of ids that are in the table, and zeros for padding.
  template <bool kGrouped>
  __device__ __forceinline__ void copy_found(RowTile const& tile, int32_t first, int32_t count,
                                             int32_t own_slot) const {
    for (auto c = tile.first_column(); __any_sync(kFullWarp, c < here.table.dim);
         c += tile.step()) {
      auto const columns = columns_at(c);
      for (int32_t base = 0; base < count; base += tile.per_warp * kInFlight) {
        copy_some<kGrouped>(tile, columns, first, count, base, own_slot);
      }
    }
  }

  template <bool kGrouped>
  __device__ __forceinline__ void copy_some(RowTile const& tile, Columns const& columns,
                                            int32_t first, int32_t count, int32_t base,
                                            int32_t own_slot) const {
    int32_t slot[kInFlight];
    RawQuad quad[kInFlight];
    float scale[kIsPacked<In> ? kInFlight : 1];
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
      auto const index = base + r * tile.per_warp + tile.index;
      slot[r] = __shfl_sync(kFullWarp, own_slot, index & 31);
      if (index >= count || columns.left <= 0) slot[r] = kMissingSlot;
    }
    // All slots first: a load between two shuffles is waited for before the next load.
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
      auto const* const row =
          nth_row(columns.from, static_cast<uint32_t>(slot[r]), columns.from_bytes);
      quad[r] = load_quad_if(slot[r] >= 0, in, row, 0, columns.left);
      if constexpr (kIsPacked<In>) {
        scale[r] = load_scale_if(slot[r] >= 0, here.table.values, slot[r], columns.from_bytes);
      }
    }
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
      if (slot[r] < kPaddingSlot) continue;
      auto const position = first + base + r * tile.per_warp + tile.index;
      auto values = to_floats(in, quad[r]);
      if constexpr (kIsPacked<In>) values = scaled(scale[r], values);
      store_quad<true>(out, place_in<kGrouped>(columns, position), 0, columns.left, values);
    }
  }

  __device__ __forceinline__ void write_initial(RowTile const& tile, int32_t first,
                                                unsigned missing, Probed const& own) const {
    auto const own_slot = slot_to_fill(own.slot);
    auto const rows = drawer();
    for (int32_t base = 0; base < 32; base += tile.per_warp * kDrawn) {
      Key key[kDrawn];
      int32_t slot[kDrawn];
      bool wanted[kDrawn], any = false;
#pragma unroll
      for (int r = 0; r < kDrawn; ++r) {
        auto const index = base + r * tile.per_warp + tile.index;
        key[r] = __shfl_sync(kFullWarp, own.key, index & 31);
        slot[r] = __shfl_sync(kFullWarp, own_slot, index & 31);
        wanted[r] = index < 32 && (missing >> index & 1) != 0;
        any |= wanted[r];
      }
      if (!any) continue;
      for (auto c = tile.first_column(); c < here.table.dim; c += tile.step()) {
        float4 values[kDrawn];
        rows.draw(in, key, c, values);
#pragma unroll
        for (int r = 0; r < kDrawn; ++r) {
          if (!wanted[r]) continue;
          store(first + base + r * tile.per_warp + tile.index, c, {values[r]});
          if (slot[r] >= 0) fill(slot[r], c, values[r]);
        }
      }
    }
  }
};

}  // namespace dynemb::cuda
