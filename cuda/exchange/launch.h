// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/exchange/launch.h: exchanges between GPUs of one host that read each other's memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/exchange.h"

namespace dynemb::cuda {

// A GPU of a group.
struct Peer {
  int id;            // no other GPU of the job has it
  int device;        // its ordinal; -1: another process has it
  std::string name;  // for messages
  // Where other processes are in the group:
  uint64_t mailbox = 0;       // where this process reaches it
  int64_t shift = 0;          // from an address of its process to one of this process
  uint64_t shared_begin = 0;  // what they map of its memory, if it is of this process
  uint64_t shared_bytes = 0;

  bool is_local() const { return device >= 0; }
};

// Bytes of the memory that a GPU's peers write to.
uint64_t mailbox_bytes();

// Prepares a group of GPUs, in order of rank, once and for good. Returns why they cannot read each
// other's memory; empty if they can. Not while a stream is captured.
std::string prepare_peers(std::vector<Peer> const& members);

struct ExchangeCall {
  int64_t const* devices;  // ids, groups of `shards` side by side
  int64_t num_devices;
  int64_t shards;
  int32_t num_arrays;
  int32_t num_pieces;
  bool counted_by_sender;  // else the receiver's counters say what is live
  bool gathers;            // an array is one part, which every device gets
  void const* sent[kMostExchanged];
  void* received[kMostExchanged];
  int64_t part_bytes[kMostExchanged];
  int32_t const* rank;  // of this device, as the program knows it
  int32_t const* counters;
  Piece pieces[kMostPieces];  // begin, row_bytes, room, array and counter are given
};

// Puts an exchange on the stream of the current device. Sets the units and chunks of the pieces.
// cudaErrorInvalidDevice: the device is in no prepared group.
cudaError_t exchange(ExchangeCall& call, cudaStream_t stream);

struct PlaceRowsCall {
  int64_t const* devices;  // as in ExchangeCall
  int64_t num_devices;
  int64_t shards;
  int32_t num_arrays;
  int32_t num_tables;
  int32_t num_spans;
  void const* sent[kMostPlacedArrays];
  int64_t part_bytes[kMostPlacedArrays];
  int32_t const* rank;
  int64_t num_ids;
  int32_t const* order;      // [num_ids] positions, those of one number side by side
  int32_t const* unique_of;  // [num_ids] the number of each position
  int32_t const* begin;      // [num_tables, shards] the numbers that each owner has rows of,
  int32_t const* end;        // in places from 0 on
  PlacedTable tables[kMostPlacedTables];
  PlacedSpan spans[kMostSpans];
  // Arrays of tables, out of which rows are read by slot; none: owners have sent all rows.
  int32_t num_stored_arrays;
  void const* stored_arrays[kMostStoredArrays];
  int32_t const* slots;  // of what this device received as an owner, table by table
  StoredTable stored[kMostPlacedTables];
  int32_t* done;  // [1] gets 0, for what must wait until the tables are read
};

// Reads rows where their owners have them, each once for all neighbours in the order, and writes
// them to the places of their positions; zeros where a position has no row.
cudaError_t place_rows(PlaceRowsCall const& call, cudaStream_t stream);

// Ids of bags that go to all devices.
struct SendBagsCall {
  PeerDevices peers;
  int32_t num_features;
  Key const* ids[kMostExchanged];       // of each feature, as many as its part says
  void const* arrived[kMostExchanged];  // [shards, ids]: those of all devices, written by them
  RoutePart parts[kMostExchanged];
};

// Sends each id to its owner, and padding in its place to the other devices.
cudaError_t send_bags(SendBagsCall const& call, cudaStream_t stream);

// Begins a lookup that writes group g of each feature's rows to device g. Its kernels write to
// memory of the peers as they write to their own, so the links work meanwhile, and no copy follows.
// The rows of all features, one or more, lie in one array, in equal parts for all devices. Puts on
// the stream the wait until all peers have room, and sets the places of the rows to that room.
cudaError_t begin_push(PeerDevices const& given, LookupArgs* args, cudaStream_t stream);

// Ends it: puts on the stream the wait until all peers have written.
cudaError_t end_push(PeerDevices const& given, cudaStream_t stream);

}  // namespace dynemb::cuda
