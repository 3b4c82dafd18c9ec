// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/exchange/exchange.cu: many blocks read what is for this GPU (cuda/exchange/round.cuh). What
// all devices get is written to them by each GPU, because the links write faster than they read.
#include "cuda/exchange/launch.h"
#include "cuda/exchange/peer_group.h"
#include "cuda/exchange/round.cuh"
#include "cuda/grid/host.h"

namespace dynemb::cuda {
namespace {

constexpr int kBlocksOfMultiprocessor = 3;
constexpr int kInFlight = 4;  // units that a thread reads before it writes
static_assert(kChunkBytes == int64_t{16} * kThreads * kInFlight, "a chunk is one turn of a block");

// A call as the kernel sees it, in two sizes, because the host copies all of it.
template <int kArrays, int kPieces>
struct CopyCall {
  static constexpr int most_arrays = kArrays;
  static constexpr int most_pieces = kPieces;
  PeersRef peers;
  uint32_t num_chunks;  // of one sender
  int32_t num_pieces;
  int32_t num_arrays;
  bool counted_by_sender;
  void* own[kArrays];  // that this GPU receives, or that it writes to all
  int64_t part_bytes[kArrays];
  int32_t const* counters;
  Piece pieces[kPieces];
};
using SmallCall = CopyCall<8, 16>;
using LargeCall = CopyCall<kMostExchanged, kMostPieces>;

template <class Call>
__device__ __forceinline__ int32_t piece_of_chunk(Call const& call, uint32_t chunk) {
  return last_begun(call.pieces, call.num_pieces, &Piece::first_chunk, chunk);
}

// Calls `move` with a number of the type in which a piece is moved.
template <class Move>
__device__ __forceinline__ void with_unit(int unit, Move const& move) {
  switch (unit) {
    case 16:
      return move(uint4{});
    case 8:
      return move(uint2{});
    case 4:
      return move(unsigned{});
    case 2:
      return move(static_cast<unsigned short>(0));
    default:
      return move(static_cast<unsigned char>(0));
  }
}

// A turn of a thread: it reads some units, and then writes them.
template <class Unit>
__device__ __forceinline__ void read_units(Unit const* source, int base, int count,
                                           Unit (&held)[kInFlight]) {
#pragma unroll
  for (int i = 0; i < kInFlight; ++i) {
    if (base + i * kThreads < count) held[i] = __ldcs(source + base + i * kThreads);
  }
}

template <class Unit>
__device__ __forceinline__ void write_units(Unit* target, int base, int count,
                                            Unit const (&held)[kInFlight]) {
#pragma unroll
  for (int i = 0; i < kInFlight; ++i) {
    if (base + i * kThreads < count) __stcs(target + base + i * kThreads, held[i]);
  }
}

template <class Unit>
__device__ __forceinline__ void copy_units(char const* from, char* to, int count) {
  auto const* const source = reinterpret_cast<Unit const*>(from);
  auto* const target = reinterpret_cast<Unit*>(to);
  constexpr int kTurn = kThreads * kInFlight;
  for (int base = static_cast<int>(threadIdx.x); base < count; base += kTurn) {
    Unit held[kInFlight];
    read_units(source, base, count, held);
    write_units(target, base, count, held);
  }
}

// What every block reads once: counters of peers are a microsecond away.
template <class Call>
struct SharedCounts {
  int32_t live[Call::most_pieces][kMostPeers];  // rows of each piece by sender; negative: all
  char const* sent[Call::most_arrays][kMostPeers];
};

template <class Call>
__device__ __forceinline__ int32_t live_rows(Call const& call, int32_t piece, int sender) {
  auto const counter = call.pieces[piece].counter;
  auto const& peers = call.peers;
  if (counter < 0) return -1;
  if (!call.counted_by_sender) return call.counters[counter * peers.shards + sender];
  auto const& letter = peers.boxes[peers.me]->letters[sender];
  auto const* const theirs = reinterpret_cast<int32_t const*>(letter.counters);
  return __ldcv(theirs + counter * peers.shards + peers.me);
}

template <class Call>
__device__ __forceinline__ void read_counts(Call const& call, SharedCounts<Call>* shared) {
  auto const& peers = call.peers;
  auto const thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < call.num_pieces * peers.shards; i += kThreads) {
    shared->live[i / peers.shards][i % peers.shards] =
        live_rows(call, i / peers.shards, i % peers.shards);
  }
  fill_addresses(peers, call.num_arrays, shared->sent);
}

template <class Call>
__device__ __forceinline__ void copy_chunk(Call const& call, SharedCounts<Call> const& shared,
                                           uint32_t chunk, int sender) {
  auto const number = piece_of_chunk(call, chunk);
  auto const& piece = call.pieces[number];
  auto const units = live_units(piece, chunk, shared.live[number][sender]);
  if (units == 0) return;
  auto const part = call.part_bytes[piece.array];
  auto const offset = piece.begin + static_cast<int64_t>(chunk - piece.first_chunk) * kChunkBytes;
  auto const* const from = shared.sent[piece.array][sender] + part * call.peers.me + offset;
  auto* const to = static_cast<char*>(call.own[piece.array]) + part * sender + offset;
  with_unit(piece.unit, [&](auto one) { copy_units<decltype(one)>(from, to, units); });
}

// Consecutive chunks are those of different senders, and every GPU begins with itself: else all
// would read from the same one at once, and a third of the links' speed would be lost.
template <class Call>
__global__ void __launch_bounds__(kThreads) dynemb_copy_kernel(__grid_constant__ Call const call) {
  __shared__ SharedCounts<Call> shared;
  auto const& peers = call.peers;
  auto const shards = static_cast<uint32_t>(peers.shards);
  read_counts(call, &shared);
  for (auto turn = blockIdx.x; turn < call.num_chunks * shards; turn += gridDim.x) {
    copy_chunk(call, shared, turn / shards, static_cast<int>((turn + peers.me) % shards));
  }
  leave_with_last_block(peers);
}

// Reads units once and writes them to all devices, this one last.
template <class Unit>
__device__ __forceinline__ void spread_units(PeersRef const& peers, char const* from,
                                             char* const* to, int64_t offset, int count) {
  auto const* const source = reinterpret_cast<Unit const*>(from);
  constexpr int kTurn = kThreads * kInFlight;
  for (int base = static_cast<int>(threadIdx.x); base < count; base += kTurn) {
    Unit held[kInFlight];
    read_units(source, base, count, held);
    for (int p = 1; p <= peers.shards; ++p) {
      auto* const target = reinterpret_cast<Unit*>(to[(peers.me + p) % peers.shards] + offset);
      write_units(target, base, count, held);
    }
  }
}

template <class Call>
__device__ __forceinline__ void spread_chunk(Call const& call,
                                             char* const (&to)[Call::most_arrays][kMostPeers],
                                             uint32_t chunk) {
  auto const& peers = call.peers;
  auto const& piece = call.pieces[piece_of_chunk(call, chunk)];
  auto const offset = piece.begin + static_cast<int64_t>(chunk - piece.first_chunk) * kChunkBytes;
  auto const units = live_units(piece, chunk, -1);
  auto const* const from = static_cast<char const*>(call.own[piece.array]) + offset;
  auto const there = call.part_bytes[piece.array] * peers.me + offset;
  with_unit(piece.unit, [&](auto one) {
    spread_units<decltype(one)>(peers, from, to[piece.array], there, units);
  });
}

template <class Call>
__global__ void __launch_bounds__(kThreads)
    dynemb_spread_kernel(__grid_constant__ Call const call) {
  __shared__ char* to[Call::most_arrays][kMostPeers];
  auto const& peers = call.peers;
  fill_addresses(peers, call.num_arrays, to);
  for (auto chunk = blockIdx.x; chunk < call.num_chunks; chunk += gridDim.x) {
    spread_chunk(call, to, chunk);
  }
  leave_after_writes(peers);
}

uint32_t program_of(ExchangeCall const& call) {
  ProgramHash hash;
  hash.add(call.num_arrays);
  hash.add(call.gathers ? 1 : 0);
  for (int32_t i = 0; i < call.num_arrays; ++i) hash.add(call.part_bytes[i]);
  for (int32_t i = 0; i < call.num_pieces; ++i) {
    auto const& piece = call.pieces[i];
    for (auto const number : {piece.begin, piece.row_bytes, piece.room, int64_t{piece.array}}) {
      hash.add(number);
    }
  }
  return hash.value;
}

uint32_t number_chunks(ExchangeCall* call) {
  uint32_t chunks = 0;
  for (int32_t i = 0; i < call->num_pieces; ++i) {
    auto& piece = call->pieces[i];
    piece.unit = unit_of(piece, call->part_bytes[piece.array]);
    piece.first_chunk = chunks;
    chunks += chunks_of(piece);
  }
  return chunks;
}

template <class Call>
cudaError_t launch_copy(ExchangeCall const& call, PeersRef const& peers, uint32_t chunks,
                        cudaStream_t stream) {
  Call copy;
  copy.peers = peers;
  copy.num_chunks = chunks;
  copy.num_pieces = call.num_pieces;
  copy.num_arrays = call.num_arrays;
  copy.counted_by_sender = call.counted_by_sender;
  copy.counters = call.counters;
  std::copy_n(call.part_bytes, call.num_arrays, copy.part_bytes);
  std::copy_n(call.pieces, call.num_pieces, copy.pieces);
  if (call.gathers) {
    for (int32_t i = 0; i < call.num_arrays; ++i) copy.own[i] = const_cast<void*>(call.sent[i]);
    auto const blocks = persistent_blocks(int64_t{chunks}, kBlocksOfMultiprocessor);
    return launch(dynemb_spread_kernel<Call>, blocks, stream, copy);
  }
  std::copy_n(call.received, call.num_arrays, copy.own);
  auto const turns = int64_t{chunks} * peers.shards;
  auto const blocks = persistent_blocks(turns, kBlocksOfMultiprocessor);
  return launch(dynemb_copy_kernel<Call>, blocks, stream, copy);
}

}  // namespace

cudaError_t exchange(ExchangeCall& call, cudaStream_t stream) {
  PeersRef peers{};
  if (!find_peers(call.devices, call.num_devices, call.shards, &peers)) {
    return cudaErrorInvalidDevice;
  }
  auto const chunks = number_chunks(&call);
  // Peers read what is sent, or write where it is received.
  void const* const* const there = call.gathers ? call.received : call.sent;
  Letter const letter = letter_of(there, call.num_arrays, call.counters, program_of(call));
  DYNEMB_CUDA_TRY(arrive(peers, letter, call.num_arrays, call.rank, stream));
  auto const is_small =
      call.num_arrays <= SmallCall::most_arrays && call.num_pieces <= SmallCall::most_pieces;
  return is_small ? launch_copy<SmallCall>(call, peers, chunks, stream)
                  : launch_copy<LargeCall>(call, peers, chunks, stream);
}

}  // namespace dynemb::cuda
