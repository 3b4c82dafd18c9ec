// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/exchange.h: an all_to_all in which only rows that mean something move.
//
// Each device has arrays of as many equal parts as there are devices. Afterwards part s of a device
// is what part `me` was on device s. Or all have arrays of one part, which every device gets.
// Pieces say where in a part rows lie, and counters how many of them are live; bytes outside of
// live rows are not written.
#pragma once

#include <cstdint>

#include "core/macros.h"

namespace dynemb {

constexpr int kMostPeers = 8;       // devices of one host
constexpr int kMostExchanged = 64;  // arrays of a call
constexpr int kMostPieces = 256;    // of a call
constexpr int64_t kChunkBytes = 16384;

// Describes rows that lie side by side in each part of an array.
struct Piece {
  int64_t begin;  // in the part, in bytes
  int64_t row_bytes;
  int64_t room;          // bytes of all rows that there is room for, and what aligns the next piece
  int32_t array;         // its number
  int32_t counter;       // its row in the counters, [counters, shards]; negative: all is live
  int32_t unit;          // bytes that are copied at once
  uint32_t first_chunk;  // counted over all pieces, of one device
};

// An exchange that puts rows into their places: sizes of a call.
constexpr int kMostPlacedArrays = 8;
constexpr int kMostPlacedTables = 128;
constexpr int kMostSpans = 256;
constexpr int kMostStoredArrays = 32;  // of tables

// Says where the rows of a table lie in each part of an array.
struct PlacedTable {
  int64_t begin;      // in the part, in bytes
  int32_t row_bytes;  //
  int32_t room;       // rows
  int32_t array;      // its number
};

// Says where peers read rows of a table by slot. An owner sends slots, and rows of only those ids
// that have no slot.
struct StoredTable {
  int32_t array;        // of those of tables
  int32_t first_place;  // of the table's slots; for each device they are as many as there is room
  int64_t first_row;    // in the array
  int64_t rows;
};

// Describes a range of a batch's positions, which ends where the next span begins. Their rows
// follow each other in one result.
struct PlacedSpan {
  char* rows;      // null: they get none
  uint32_t begin;  // the first position
  int32_t table;   // of them all
};

// Fields of both as Python writes them.
enum PlacedTableField : int32_t {
  kPlacedArray,
  kPlacedBegin,
  kPlacedRowBytes,
  kPlacedRoom,
  kNumPlacedTableFields
};
enum StoredTableField : int32_t {
  kStoredArray,
  kStoredFirstPlace,
  kStoredFirstRow,
  kStoredRows,
  kNumStoredTableFields
};
enum SpanField : int32_t { kSpanBegin, kSpanTable, kSpanResult, kSpanRow, kNumSpanFields };

// Fields of a piece as Python writes them.
enum PieceField : int32_t {
  kPieceArray,
  kPieceBegin,
  kPieceRowBytes,
  kPieceRoom,
  kPieceCounter,
  kNumPieceFields
};

// Chooses the widest unit to which a piece and the parts of its array are aligned.
inline int32_t unit_of(Piece const& piece, int64_t part_bytes) {
  int32_t unit = 16;
  while ((piece.begin | piece.room | part_bytes) % unit != 0) unit /= 2;
  return unit;
}

DYNEMB_HD uint32_t chunks_of(Piece const& piece) {
  return static_cast<uint32_t>((piece.room + kChunkBytes - 1) / kChunkBytes);
}

// Finds the last of some items in order that begins at or before a position, or the first item.
template <class Item, class Position>
DYNEMB_HD int32_t last_begun(Item const* items, int32_t count, Position Item::* begin,
                             Position position) {
  int32_t low = 0, high = count - 1;
  while (low < high) {
    auto const middle = (low + high + 1) / 2;
    if (items[middle].*begin <= position) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Counts the units of a chunk that hold live rows.
DYNEMB_HD int32_t live_units(Piece const& piece, uint32_t chunk, int64_t live_rows) {
  auto const live = live_rows * piece.row_bytes;
  auto const end = live_rows < 0 || live > piece.room ? piece.room : live;
  auto const begin = static_cast<int64_t>(chunk - piece.first_chunk) * kChunkBytes;
  if (end <= begin) return 0;
  auto const bytes = end - begin < kChunkBytes ? end - begin : kChunkBytes;
  return static_cast<int32_t>((bytes + piece.unit - 1) / piece.unit);
}

}  // namespace dynemb
