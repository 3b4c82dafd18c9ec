// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/records.cuh: a home record and the rows of a table's arrays that it consists of
// (core/tiers/record.h), 16 bytes at a time.
//
// Host memory is read and written in whole pieces of 16 bytes: what limits it is how many places
// are touched, not how many bytes. Where a row or a state has an odd width, a piece is put together
// from words or halves in device memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/tiers/record.h"
#include "core/tiers/tier_ref.h"
#include "cuda/grid/host.h"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

constexpr int kPieceBytes = 16;
constexpr int kPiecesInFlight = 4;  // of a lane

// One of the arrays that a record is spread over.
struct RecordPart {
  char* base;       // of row 0
  int32_t offset;   // in the record
  int32_t bytes;    // of a row
  int32_t unit;     // bytes that are moved at once: 16, 4 or 2
  int32_t nothing;  // fills the struct
};

struct RecordParts {
  RecordPart part[1 + kMaxStates];  // the row, then the states
  int32_t count;
  int32_t pieces;  // of a record
};

// Lanes that a record keeps busy: a power of two.
DYNEMB_HD int lanes_of_record(RecordParts const& parts) {
  int lanes = 1;
  while (lanes < 32 && lanes < parts.pieces) lanes *= 2;
  return lanes;
}

__device__ __forceinline__ uint32_t load_word(RecordPart const& part, int64_t row, int32_t byte) {
  auto const* const from = part.base + row * part.bytes + byte;
  if (part.unit >= 4) return *reinterpret_cast<uint32_t const*>(from);
  auto const* const halves = reinterpret_cast<uint16_t const*>(from);
  return halves[0] | (byte + 4 <= part.bytes ? uint32_t{halves[1]} << 16 : 0);
}

__device__ __forceinline__ void store_word(RecordPart const& part, int64_t row, int32_t byte,
                                           uint32_t word) {
  auto* const to = part.base + row * part.bytes + byte;
  if (part.unit >= 4) {
    *reinterpret_cast<uint32_t*>(to) = word;
    return;
  }
  auto* const halves = reinterpret_cast<uint16_t*>(to);
  halves[0] = static_cast<uint16_t>(word);
  if (byte + 4 <= part.bytes) halves[1] = static_cast<uint16_t>(word >> 16);
}

// Calls whole(part, byte) if the piece lies in one part that moves 16 bytes at once; else
// word(part, byte, i) for each of its four words that a part has. `byte`: in the part.
template <class Whole, class Word>
__device__ __forceinline__ void visit_piece(RecordParts const& parts, int32_t piece,
                                            Whole const& whole, Word const& word) {
  auto const begin = piece * kPieceBytes;
#pragma unroll
  for (int p = 0; p < 1 + kMaxStates; ++p) {
    if (p >= parts.count) break;
    auto const& part = parts.part[p];
    auto const byte = begin - part.offset;
    if (part.unit == kPieceBytes && byte >= 0 && byte < part.bytes) return whole(part, byte);
  }
#pragma unroll
  for (int p = 0; p < 1 + kMaxStates; ++p) {
    if (p >= parts.count) break;
    auto const& part = parts.part[p];
    for (int i = 0; i < 4; ++i) {
      auto const byte = begin + 4 * i - part.offset;
      if (byte >= 0 && byte < part.bytes) word(part, byte, i);
    }
  }
}

// Padding reads as zeros.
__device__ __forceinline__ uint4 load_piece(RecordParts const& parts, int64_t row, int32_t piece) {
  uint4 result{0, 0, 0, 0};
  visit_piece(
      parts, piece,
      [&](RecordPart const& part, int32_t byte) {
        result = *reinterpret_cast<uint4 const*>(part.base + row * part.bytes + byte);
      },
      [&](RecordPart const& part, int32_t byte, int i) {
        auto const value = load_word(part, row, byte);
        (i == 0 ? result.x : i == 1 ? result.y : i == 2 ? result.z : result.w) = value;
      });
  return result;
}

__device__ __forceinline__ void store_piece(RecordParts const& parts, int64_t row, int32_t piece,
                                            uint4 const& value) {
  visit_piece(
      parts, piece,
      [&](RecordPart const& part, int32_t byte) {
        *reinterpret_cast<uint4*>(part.base + row * part.bytes + byte) = value;
      },
      [&](RecordPart const& part, int32_t byte, int i) {
        store_word(part, row, byte,
                   i == 0   ? value.x
                   : i == 1 ? value.y
                   : i == 2 ? value.z
                            : value.w);
      });
}

// Returns the home record of a slot.
template <class Homes>
__device__ __forceinline__ auto* record_at(Homes* homes, int64_t record_bytes, int64_t slot) {
  using Piece = std::conditional_t<std::is_const_v<Homes>, uint4 const, uint4>;
  return reinterpret_cast<Piece*>(homes + slot * record_bytes);
}

// One record comes in and another row goes home. `to_row` < 0 or `to_record` == null leaves one of
// them out. The lanes of a tile call this. All loads come before all stores, so that both
// directions of the bus work.
struct RecordSwap {
  uint4 const* from_record;
  int64_t to_row;
  int64_t from_row;
  uint4* to_record;
};

__device__ __forceinline__ void swap_records(RecordParts const& parts, RowTile const& tile,
                                             RecordSwap const& swap) {
  for (auto base = tile.rank; base < parts.pieces; base += tile.lanes * kPiecesInFlight) {
    uint4 far[kPiecesInFlight], near[kPiecesInFlight];
#pragma unroll
    for (int k = 0; k < kPiecesInFlight; ++k) {
      auto const piece = base + k * tile.lanes;
      if (piece < parts.pieces && swap.to_row >= 0) far[k] = swap.from_record[piece];
    }
#pragma unroll
    for (int k = 0; k < kPiecesInFlight; ++k) {
      auto const piece = base + k * tile.lanes;
      if (piece < parts.pieces && swap.to_record != nullptr) {
        near[k] = load_piece(parts, swap.from_row, piece);
      }
    }
#pragma unroll
    for (int k = 0; k < kPiecesInFlight; ++k) {
      auto const piece = base + k * tile.lanes;
      if (piece < parts.pieces && swap.to_record != nullptr) swap.to_record[piece] = near[k];
    }
#pragma unroll
    for (int k = 0; k < kPiecesInFlight; ++k) {
      auto const piece = base + k * tile.lanes;
      if (piece < parts.pieces && swap.to_row >= 0) store_piece(parts, swap.to_row, piece, far[k]);
    }
  }
}

__device__ __forceinline__ void bring_record(RecordParts const& parts, RowTile const& tile,
                                             uint4 const* record, int64_t row) {
  swap_records(parts, tile, {record, row, -1, nullptr});
}

// Copies a row to another one.
__device__ __forceinline__ void copy_row(RecordParts const& parts, RowTile const& tile,
                                         int64_t from, int64_t to) {
  for (auto piece = tile.rank; piece < parts.pieces; piece += tile.lanes) {
    store_piece(parts, to, piece, load_piece(parts, from, piece));
  }
}

// One thread writes a mark in a row of each array. Settle reads it (core/tiers/tier_args.h).
constexpr uint16_t kNotThere = 0x1234;
constexpr uint16_t kThere = 0x5a3c;

__device__ __forceinline__ uint16_t* mark_at(RecordPart const& part, int64_t row) {
  return reinterpret_cast<uint16_t*>(part.base + row * part.bytes);
}

__device__ __forceinline__ void set_marks(RecordParts const& parts, int64_t row, uint16_t mark) {
  for (int p = 0; p < parts.count; ++p) *mark_at(parts.part[p], row) = mark;
}

__device__ __forceinline__ bool has_marks(RecordParts const& parts, int64_t row) {
  auto there = true;
  for (int p = 0; p < parts.count; ++p) there &= *mark_at(parts.part[p], row) == kThere;
  return there;
}

// ---- host ---------------------------------------------------------------------------------------

inline RecordPart record_part(void* base, int64_t offset, int64_t bytes) {
  auto const bits = reinterpret_cast<uintptr_t>(base) | static_cast<uintptr_t>(offset | bytes);
  auto const unit = bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 2;
  return {static_cast<char*>(base), static_cast<int32_t>(offset), static_cast<int32_t>(bytes), unit,
          0};
}

inline RecordParts record_parts(TableRef const& table) {
  RecordParts parts{};
  parts.part[0] = record_part(table.values, 0, row_bytes_of(table));
  for (int s = 0; s < table.num_states; ++s) {
    parts.part[s + 1] =
        record_part(table.states[s], state_offset(table, s), int64_t{4} * table.state_width[s]);
  }
  parts.count = 1 + table.num_states;
  parts.pieces = static_cast<int32_t>(record_bytes_of(table) / kPieceBytes);
  return parts;
}

// Blocks of a kernel that moves records over the bus: one for every fourth multiprocessor is what
// the bus needs. With more of them the addresses in use would be further apart.
inline int64_t bus_blocks(int64_t most_useful) {
  return std::max<int64_t>(1, std::min(most_useful, multiprocessors() / 4));
}

}  // namespace dynemb::cuda
