// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/new_slots.cuh: first values of the slots that the lanes of a warp have brought keys
// into.
#pragma once

#include <cstdint>

#include "cuda/grid/initial_rows.cuh"

namespace dynemb::cuda {

struct NewSlot {
  Key key;
  int32_t slot;
};

// Calls function(NewSlot) for each of the lanes in `lanes`, by all lanes of a tile.
template <class Function>
__device__ __forceinline__ void for_each_new(RowTile const& tile, unsigned lanes,
                                             NewSlot const& own, Function const& function) {
  for (int32_t base = 0; base < 32; base += tile.per_warp) {
    if ((lanes & lane_mask(base, tile.per_warp)) == 0) continue;
    auto const from = base + tile.index;
    auto const key = __shfl_sync(kFullWarp, own.key, from);
    auto const slot = __shfl_sync(kFullWarp, own.slot, from);
    if ((lanes >> from & 1) != 0) function(NewSlot{key, slot});
  }
}

// Writes states for the lanes in `lanes` and rows for those in `rows`, at slots of one table. Most
// states take a sector at most: then each lane writes its own.
__device__ __forceinline__ void initialize_slots(TableRef const& table, unsigned lanes,
                                                 unsigned rows, NewSlot const& own) {
  auto const filler = SlotFiller(table);
  auto const tile = RowTile::of_row(table.dim);
  auto const fill_states = [&](NewSlot const& to) { filler.fill_states(tile, to.slot); };
  if (rows != 0 && writes_rows(filler.initializer.kind)) {
    for_each_new(tile, rows, own,
                 [&](NewSlot const& to) { filler.fill_row(tile, to.key, to.slot); });
  }
  if (!filler.fills_sectors()) return for_each_new(tile, lanes, own, fill_states);
  if ((lanes >> lane_id() & 1) != 0) filler.fill_states(RowTile(1), own.slot);
}

}  // namespace dynemb::cuda
