// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/table/rows.cu: rows, states and scores of given slots, read and written: a tile of lanes a
// slot.
#include "core/last_writer.h"
#include "core/row.h"
#include "core/slot.h"
#include "cuda/grid/host.h"
#include "cuda/grid/initial_rows.cuh"
#include "cuda/grid/rounding.cuh"

namespace dynemb::cuda {
namespace {

// Returns the format of a row of floats in memory of the caller.
__device__ __forceinline__ AnyFormat float_format(void const* rows, int32_t width) {
  return {ValueType::kFloat32, moves_vectors(rows, width)};
}

struct Columns {
  AnyFormat from_format;
  char const* from;  // null reads `instead`
  float instead;
  AnyFormat to_format;
  char* to;
  int32_t width;
};

__device__ __forceinline__ void copy_columns(RowTile const& tile, Columns const& c) {
  for (auto column = tile.first_column(); column < c.width; column += tile.step()) {
    auto values = float4{c.instead, c.instead, c.instead, c.instead};
    if (c.from != nullptr) {
      values = to_floats(c.from_format, load_quad(c.from_format, c.from, column, c.width));
    }
    store_quad(c.to_format, c.to, column, c.width, values);
  }
}

// Holds the row of slot `slot` in an array of the table, and row i of the caller's array for it.
struct RowPair {
  AnyFormat stored_format;
  char* stored;
  AnyFormat given_format;
  char* given;
  int32_t width;
};

__device__ __forceinline__ RowPair value_rows(RowsArgs const& args, int64_t i, int32_t slot) {
  auto const& table = args.table;
  auto const stored = value_format(table);
  auto const given = float_format(args.values, table.dim);
  return {stored, row_pointer(stored, table.values, slot, table.dim), given,
          row_pointer(given, args.values, i, table.dim), table.dim};
}

__device__ __forceinline__ RowPair state_rows(RowsArgs const& args, int s, int64_t i,
                                              int32_t slot) {
  auto const& table = args.table;
  auto const width = table.state_width[s];
  auto stored = float_format(table.states[s], width);
  if (is_half_state(table, s)) stored.type = ValueType::kBFloat16;
  auto const given = float_format(args.states[s], width);
  return {stored, row_pointer(stored, table.states[s], slot, width), given,
          row_pointer(given, args.states[s], i, width), width};
}

__device__ __forceinline__ void read_row(RowTile const& tile, RowPair const& p, bool there,
                                         float instead) {
  copy_columns(tile, {p.stored_format, there ? p.stored : nullptr, instead, p.given_format, p.given,
                      p.width});
}

__device__ __forceinline__ void write_row(RowTile const& tile, RowPair const& p) {
  copy_columns(tile, {p.given_format, p.given, 0.0f, p.stored_format, p.stored, p.width});
}

// Writes values as an update rounds them.
__device__ __forceinline__ void write_rounded(RowTile const& tile, TableRef const& table,
                                              int32_t slot, RowPair const& p) {
  auto const seed = rounding_seed(table.counters);
  auto const key = *rounding_key_at(table, slot);
  for (auto column = tile.first_column(); column < p.width; column += tile.step()) {
    auto values = to_floats(p.given_format, load_quad(p.given_format, p.given, column, p.width));
    auto const quad = static_cast<uint32_t>(column) / 4;
    if (table.value_type != ValueType::kFloat32) {
      values = rounded_quad(seed, key, quad, table.value_type, values);
    }
    store_quad(p.stored_format, p.stored, column, p.width, values);
  }
}

__device__ __forceinline__ void write_values(RowTile const& tile, RowsArgs const& args, int64_t i,
                                             int32_t slot) {
  auto const rows = value_rows(args, i, slot);
  if (args.rounds != 0) return write_rounded(tile, args.table, slot, rows);
  write_row(tile, rows);
}

__device__ __forceinline__ void write_constant(RowTile const& tile, RowPair const& p, float value) {
  copy_columns(tile, {p.stored_format, nullptr, value, p.stored_format, p.stored, p.width});
}

// Lanes write states when all of their tile have seen whether there are any.
__device__ __forceinline__ void write_states(RowTile const& tile, RowsArgs const& args, int64_t i,
                                             int32_t slot) {
  auto const unwritten = has_unwritten_states(args.table, slot);
  __syncwarp(tile.mask());
  auto given = false;
  for (int s = 0; s < args.table.num_states; ++s) given |= args.states[s] != nullptr;
  for (int s = 0; given && s < args.table.num_states; ++s) {
    auto const rows = state_rows(args, s, i, slot);
    if (args.states[s] != nullptr) {
      write_row(tile, rows);
    } else if (unwritten) {
      write_constant(tile, rows, args.table.state_initial[s]);
    }
  }
}

__device__ __forceinline__ int64_t slot_of_tile(RowTile const& tile) {
  return (int64_t{blockIdx.x} * kThreads + threadIdx.x) / tile.lanes;
}

__global__ void __launch_bounds__(kThreads) gather_kernel(__grid_constant__ RowsArgs const args) {
  auto const tile = RowTile(lanes_of_row(args.table.dim));
  auto const i = slot_of_tile(tile);
  if (i >= args.num_slots) return;
  auto const slot = args.slots[i];
  auto const live = is_live(slot, num_slots(args.table));
  auto const at = live ? slot : 0;
  if (args.values != nullptr) read_row(tile, value_rows(args, i, at), live, 0.0f);
  auto const written = live && !has_unwritten_states(args.table, slot);
  for (int s = 0; s < args.table.num_states; ++s) {
    if (args.states[s] == nullptr) continue;
    auto const instead = live ? args.table.state_initial[s] : 0.0f;
    read_row(tile, state_rows(args, s, i, at), written, instead);
  }
  if (args.scores != nullptr && tile.rank == 0) {
    args.scores[i] = live ? seen_score(args.table, slot) : 0;
  }
}

__device__ __forceinline__ void write_slot(RowTile const& tile, RowsArgs const& args, int64_t i,
                                           int32_t slot) {
  if (slot < 0) return;  // see slot_at
  if (args.values != nullptr) write_values(tile, args, i, slot);
  write_states(tile, args, i, slot);
  if (args.scores != nullptr && tile.rank == 0) {
    bring_score(args.table, slot, args.scores[i]);
  }
}

struct ScatterCall {
  RowsArgs args;
  LastWriters writers;
  int32_t slots_of_warp;

  // What is written from position `i`, or -1.
  __device__ __forceinline__ int32_t slot_at(int64_t i) const {
    auto const slot = i < args.num_slots ? args.slots[i] : kPaddingSlot;
    auto const written = is_live(slot, num_slots(args.table)) &&
                         (writers.entries == nullptr || is_last_writer(writers, slot, i));
    return written ? slot : kPaddingSlot;
  }
};

__global__ void __launch_bounds__(kThreads)
    note_writers_kernel(__grid_constant__ ScatterCall const call) {
  auto const i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= call.args.num_slots) return;
  auto const slot = call.args.slots[i];
  if (is_live(slot, num_slots(call.args.table))) note_writer(call.writers, slot, i);
}

__global__ void __launch_bounds__(kThreads)
    scatter_kernel(__grid_constant__ ScatterCall const call) {
  auto const& args = call.args;
  auto const tile = RowTile(lanes_of_row(args.table.dim));
  auto const warp = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
  auto const first = warp * call.slots_of_warp;
  auto const own = lane_id() < call.slots_of_warp ? call.slot_at(first + lane_id()) : kPaddingSlot;
  for (int32_t base = 0; base < call.slots_of_warp; base += tile.per_warp) {
    auto const from = base + tile.index;
    write_slot(tile, args, first + from, __shfl_sync(kFullWarp, own, from));
  }
}

unsigned blocks_of(RowsArgs const& args) {
  return static_cast<unsigned>(
      ceil_div(args.num_slots * lanes_of_row(args.table.dim), int64_t{kThreads}));
}

}  // namespace

size_t gather_scratch_bytes(RowsArgs const& /*args*/) { return 0; }

size_t scatter_scratch_bytes(RowsArgs const& args) {
  return args.last_wins == 0 ? 0 : LastWriters::entries_for(args.num_slots) * sizeof(uint64_t);
}

cudaError_t gather(RowsArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  if (args.num_slots == 0) return cudaSuccess;
  gather_kernel<<<blocks_of(args), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

cudaError_t scatter(RowsArgs const& args, void* scratch, cudaStream_t stream) {
  if (args.num_slots == 0) return cudaSuccess;
  ScatterCall call{args, {nullptr, 0}, items_per_warp(args.num_slots)};
  if (auto const bytes = scatter_scratch_bytes(args); bytes != 0) {
    call.writers = {static_cast<uint64_t*>(scratch), bytes / sizeof(uint64_t) - 1};
    DYNEMB_CUDA_TRY(cudaMemsetAsync(scratch, 0, bytes, stream));
    DYNEMB_CUDA_TRY(launch(note_writers_kernel, ceil_div(args.num_slots, kThreads), stream, call));
  }
  auto const warps = ceil_div(args.num_slots, call.slots_of_warp);
  return launch(scatter_kernel, ceil_div(warps, kWarpsPerBlock), stream, call);
}

}  // namespace dynemb::cuda
