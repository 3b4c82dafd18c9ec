// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/exchange/place_rows.cu: an exchange of rows that ends in the places of a batch
// (cuda/exchange/round.cuh). A warp takes 32 positions of one order, in which those of equal ids
// are neighbours. So a row crosses the links once, or once more where two warps share its
// positions, and writing it hides behind reading others. Owners may leave rows in their tables, and
// send slots and the rows of ids without one (kStored): so a row is not copied before it travels.
#include <numeric>

#include "cuda/exchange/launch.h"
#include "cuda/exchange/peer_group.h"
#include "cuda/exchange/round.cuh"
#include "cuda/grid/host.h"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {
namespace {

constexpr int kBlocksOfMultiprocessor = 6;
constexpr int kRowsAhead = 4;  // rows that a tile reads before it writes

// What a call takes where rows are read from tables.
template <bool kStored>
struct StoredCall {};

template <>
struct StoredCall<true> {
  int32_t num_arrays;
  int32_t* done;
  StoredTable tables[kMostPlacedTables];
};

template <bool kStored>
struct PlaceCall {
  PeersRef peers;
  uint32_t num_chunks;  // of 32 positions
  uint32_t stride;      // from a chunk to the next; it has no divisor of num_chunks
  uint32_t num_ids;
  int32_t num_arrays;
  int32_t num_tables;
  int32_t num_spans;
  int32_t lanes;       // of a tile, which moves a row
  int32_t most_units;  // of a row
  int32_t const* order;
  int32_t const* unique_of;
  int32_t const* begin;
  int32_t const* end;
  int64_t part_bytes[kMostPlacedArrays];
  PlacedTable tables[kMostPlacedTables];
  PlacedSpan spans[kMostSpans];
  StoredCall<kStored> stored;
};

// What the lanes of a warp know of their positions.
struct WarpRows {
  char const* from[32];  // null: there is no row
  char* to[32];          // null: there is no position
  int32_t units[32];
  int32_t head[33];  // lanes where the positions of another row begin, and 32
};

template <bool kStored>
struct StoredMemory {};

template <>
struct StoredMemory<true> {
  char const* arrays[kMostPeers][kMostStoredArrays];
  int32_t const* slots[kMostPeers];
  StoredTable tables[kMostPlacedTables];
};

template <bool kStored>
struct PlaceMemory {
  char const* sent[kMostPeers][kMostPlacedArrays];
  int32_t begin[kMostPlacedTables * kMostPeers];
  int32_t end[kMostPlacedTables * kMostPeers];
  PlacedTable tables[kMostPlacedTables];
  PlacedSpan spans[kMostSpans];
  WarpRows warps[kWarpsPerBlock];
  StoredMemory<kStored> stored;
};

// The letter has the arrays that are sent, those of tables, and slots.
__device__ __forceinline__ void fill_stored(PlaceCall<true> const& call,
                                            StoredMemory<true>* memory) {
  auto const& peers = call.peers;
  auto const thread = static_cast<int>(threadIdx.x);
  auto const arrays = call.stored.num_arrays;
  for (int i = thread; i < arrays * peers.shards; i += kThreads) {
    auto const sender = i / arrays, array = i % arrays;
    memory->arrays[sender][array] = address_of<char const>(peers, sender, call.num_arrays + array);
  }
  for (int sender = thread; sender < peers.shards; sender += kThreads) {
    memory->slots[sender] = address_of<int32_t const>(peers, sender, call.num_arrays + arrays);
  }
  for (int i = thread; i < call.num_tables; i += kThreads) {
    memory->tables[i] = call.stored.tables[i];
  }
}

template <bool kStored>
__device__ __forceinline__ void fill_memory(PlaceCall<kStored> const& call,
                                            PlaceMemory<kStored>* memory) {
  auto const& peers = call.peers;
  auto const thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < call.num_arrays * peers.shards; i += kThreads) {
    auto const sender = i / call.num_arrays, array = i % call.num_arrays;
    memory->sent[sender][array] = address_of<char const>(peers, sender, array);
  }
  if constexpr (kStored) fill_stored(call, &memory->stored);
  for (int i = thread; i < call.num_tables * peers.shards; i += kThreads) {
    memory->begin[i] = call.begin[i];
    memory->end[i] = call.end[i];
  }
  for (int i = thread; i < call.num_tables; i += kThreads) memory->tables[i] = call.tables[i];
  for (int i = thread; i < call.num_spans; i += kThreads) memory->spans[i] = call.spans[i];
  __syncthreads();
}

template <bool kStored>
__device__ __forceinline__ PlacedSpan const& span_of(PlaceCall<kStored> const& call,
                                                     PlaceMemory<kStored> const& memory,
                                                     uint32_t position) {
  return memory.spans[last_begun(memory.spans, call.num_spans, &PlacedSpan::begin, position)];
}

// Where a table of an owner has the row of a place; null if the id there has no slot.
__device__ __forceinline__ char const* stored_row(StoredMemory<true> const& memory, int owner,
                                                  int32_t table, int32_t place, int32_t row_bytes) {
  auto const& rows = memory.tables[table];
  auto const slot = memory.slots[owner][rows.first_place + place];
  if (slot < 0 || slot >= rows.rows) return nullptr;
  return memory.arrays[owner][rows.array] + (rows.first_row + slot) * row_bytes;
}

// Where the row of a number lies; null if it does not travel.
template <bool kStored>
__device__ __forceinline__ char const* row_of(PlaceCall<kStored> const& call,
                                              PlaceMemory<kStored> const& memory, int32_t table,
                                              int32_t number) {
  auto const& peers = call.peers;
  auto const* const begin = memory.begin + table * peers.shards;
  int owner = 0;
  for (int i = 1; i < peers.shards; ++i) owner += number >= begin[i] ? 1 : 0;
  auto const& rows = memory.tables[table];
  auto const place = number - begin[owner];
  if (place < 0 || place >= rows.room || number >= memory.end[table * peers.shards + owner]) {
    return nullptr;
  }
  if constexpr (kStored) {
    auto const of_me = peers.me * rows.room + place;
    auto const* const row = stored_row(memory.stored, owner, table, of_me, rows.row_bytes);
    if (row != nullptr) return row;
  }
  return memory.sent[owner][rows.array] + call.part_bytes[rows.array] * peers.me + rows.begin +
         int64_t{place} * rows.row_bytes;
}

// Fills in what a warp moves; returns how many rows that are, with one for each stretch of
// positions without a row.
template <class Unit, bool kStored>
__device__ __forceinline__ int find_rows(PlaceCall<kStored> const& call,
                                         PlaceMemory<kStored> const& memory, uint32_t chunk,
                                         WarpRows* rows) {
  auto const lane = lane_id();
  auto const item = chunk * 32 + static_cast<uint32_t>(lane);
  char const* from = nullptr;
  char* to = nullptr;
  int32_t units = 0;
  auto const position = item < call.num_ids ? static_cast<uint32_t>(call.order[item]) : ~0u;
  if (position < call.num_ids) {
    auto const& span = span_of(call, memory, position);
    if (span.rows != nullptr) {
      auto const row_bytes = memory.tables[span.table].row_bytes;
      from = row_of(call, memory, span.table, call.unique_of[position]);
      to = span.rows + int64_t{position - span.begin} * row_bytes;
      units = row_bytes / static_cast<int32_t>(sizeof(Unit));
    }
  }
  auto const before = __shfl_up_sync(kFullWarp, reinterpret_cast<uint64_t>(from), 1);
  auto const is_head = lane == 0 || before != reinterpret_cast<uint64_t>(from);
  auto const heads = __ballot_sync(kFullWarp, is_head);
  rows->from[lane] = from;
  rows->to[lane] = to;
  rows->units[lane] = units;
  if (is_head) rows->head[__popc(heads & lanes_below())] = lane;
  if (lane == 0) rows->head[__popc(heads)] = 32;
  __syncwarp();
  return __popc(heads);
}

template <class Unit, bool kStored>
__device__ __forceinline__ void move_rows(PlaceCall<kStored> const& call, WarpRows const& rows,
                                          int num_rows) {
  auto const tiles = 32 / call.lanes, tile = lane_id() / call.lanes;
  for (int unit = lane_id() % call.lanes; unit < call.most_units; unit += call.lanes) {
    for (int first = tile; first < num_rows; first += tiles * kRowsAhead) {
      Unit held[kRowsAhead] = {};
#pragma unroll
      for (int i = 0; i < kRowsAhead; ++i) {
        auto const row = first + i * tiles;
        if (row >= num_rows) continue;
        auto const head = rows.head[row];
        auto const* const from = reinterpret_cast<Unit const*>(rows.from[head]);
        if (from != nullptr && unit < rows.units[head]) held[i] = __ldcs(from + unit);
      }
#pragma unroll
      for (int i = 0; i < kRowsAhead; ++i) {
        auto const row = first + i * tiles;
        if (row >= num_rows) continue;
        for (int lane = rows.head[row]; lane < rows.head[row + 1]; ++lane) {
          if (unit < rows.units[lane]) {
            __stcs(reinterpret_cast<Unit*>(rows.to[lane]) + unit, held[i]);
          }
        }
      }
    }
  }
  __syncwarp();
}

// Neighbours in the order are of one owner, so warps that run side by side take chunks that lie far
// apart: else all GPUs would read from the same one at once.
template <class Unit, bool kStored>
__global__ void __launch_bounds__(kThreads)
    dynemb_place_rows_kernel(__grid_constant__ PlaceCall<kStored> const call) {
  __shared__ PlaceMemory<kStored> memory;
  fill_memory(call, &memory);
  auto& rows = memory.warps[threadIdx.x / 32];
  auto const step = gridDim.x * kWarpsPerBlock;
  for (auto turn = blockIdx.x * kWarpsPerBlock + threadIdx.x / 32; turn < call.num_chunks;
       turn += step) {
    auto const chunk = static_cast<uint32_t>(uint64_t{turn} * call.stride % call.num_chunks);
    auto const num_rows = find_rows<Unit>(call, memory, chunk, &rows);
    move_rows<Unit>(call, rows, num_rows);
  }
  if constexpr (kStored) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *call.stored.done = 0;
  }
  leave_with_last_block(call.peers);
}

uint32_t program_of(PlaceRowsCall const& call) {
  ProgramHash hash;
  hash.add(call.num_ids);
  for (int32_t i = 0; i < call.num_arrays; ++i) hash.add(call.part_bytes[i]);
  for (int32_t i = 0; i < call.num_tables; ++i) {
    auto const& table = call.tables[i];
    for (auto const number :
         {table.begin, int64_t{table.row_bytes}, int64_t{table.room}, int64_t{table.array}}) {
      hash.add(number);
    }
  }
  hash.add(call.num_stored_arrays);
  for (int32_t i = 0; call.num_stored_arrays > 0 && i < call.num_tables; ++i) {
    auto const& table = call.stored[i];
    for (auto const number :
         {int64_t{table.array}, int64_t{table.first_place}, table.first_row, table.rows}) {
      hash.add(number);
    }
  }
  return hash.value;
}

// The widest unit in which all rows are moved.
int unit_of(PlaceRowsCall const& call) {
  int64_t all = 0;
  for (int32_t i = 0; i < call.num_arrays; ++i) all |= call.part_bytes[i];
  for (int32_t i = 0; i < call.num_tables; ++i) {
    all |= call.tables[i].begin | call.tables[i].row_bytes;
  }
  int unit = 16;
  while (all % unit != 0) unit /= 2;
  return unit;
}

uint32_t stride_of(uint32_t chunks) {
  auto stride = static_cast<uint32_t>(0.618 * chunks) | 1;
  while (std::gcd(stride, chunks) != 1) stride += 2;
  return stride;
}

template <class Unit, bool kStored>
cudaError_t launch_place(PlaceRowsCall const& call, PeersRef const& peers, cudaStream_t stream) {
  PlaceCall<kStored> place{};
  place.peers = peers;
  place.num_chunks = static_cast<uint32_t>(ceil_div(call.num_ids, 32));
  place.stride = stride_of(place.num_chunks);
  place.num_ids = static_cast<uint32_t>(call.num_ids);
  place.num_arrays = call.num_arrays;
  place.num_tables = call.num_tables;
  place.num_spans = call.num_spans;
  place.order = call.order;
  place.unique_of = call.unique_of;
  place.begin = call.begin;
  place.end = call.end;
  std::copy_n(call.part_bytes, call.num_arrays, place.part_bytes);
  std::copy_n(call.tables, call.num_tables, place.tables);
  std::copy_n(call.spans, call.num_spans, place.spans);
  if constexpr (kStored) {
    place.stored.num_arrays = call.num_stored_arrays;
    place.stored.done = call.done;
    std::copy_n(call.stored, call.num_tables, place.stored.tables);
  }
  for (int32_t i = 0; i < call.num_tables; ++i) {
    auto const units = call.tables[i].row_bytes / static_cast<int32_t>(sizeof(Unit));
    place.most_units = std::max(place.most_units, units);
  }
  place.lanes = 1;
  while (place.lanes < std::min(32, place.most_units)) place.lanes *= 2;
  auto const blocks =
      persistent_blocks(ceil_div(place.num_chunks, kWarpsPerBlock), kBlocksOfMultiprocessor);
  return launch(dynemb_place_rows_kernel<Unit, kStored>, blocks, stream, place);
}

template <class Unit>
cudaError_t launch_place(PlaceRowsCall const& call, PeersRef const& peers, cudaStream_t stream) {
  if (call.num_stored_arrays == 0) return launch_place<Unit, false>(call, peers, stream);
  return launch_place<Unit, true>(call, peers, stream);
}

// Writes down all addresses that peers read from; returns how many.
int32_t list_arrays(PlaceRowsCall const& call, void const** arrays) {
  auto* end = std::copy_n(call.sent, call.num_arrays, arrays);
  if (call.num_stored_arrays > 0) {
    end = std::copy_n(call.stored_arrays, call.num_stored_arrays, end);
    *end++ = call.slots;
  }
  return static_cast<int32_t>(end - arrays);
}
static_assert(kMostPlacedArrays + kMostStoredArrays < kMostExchanged);

}  // namespace

cudaError_t place_rows(PlaceRowsCall const& call, cudaStream_t stream) {
  PeersRef peers{};
  if (!find_peers(call.devices, call.num_devices, call.shards, &peers)) {
    return cudaErrorInvalidDevice;
  }
  void const* arrays[kMostExchanged];
  auto const num_arrays = list_arrays(call, arrays);
  auto const letter = letter_of(arrays, num_arrays, nullptr, program_of(call));
  DYNEMB_CUDA_TRY(arrive(peers, letter, num_arrays, call.rank, stream));
  switch (unit_of(call)) {
    case 16:
      return launch_place<uint4>(call, peers, stream);
    case 8:
      return launch_place<uint2>(call, peers, stream);
    case 4:
      return launch_place<unsigned>(call, peers, stream);
    case 2:
      return launch_place<unsigned short>(call, peers, stream);
    default:
      return launch_place<unsigned char>(call, peers, stream);
  }
}

}  // namespace dynemb::cuda
