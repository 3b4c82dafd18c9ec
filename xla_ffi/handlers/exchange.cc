// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#ifdef DYNEMB_CUDA

#include "xla_ffi/handlers/exchange.h"

#include "cuda/exchange/launch.h"
#include "xla_ffi/backend.h"
#include "xla_ffi/buffers.h"

namespace dynemb {
namespace {

// Whether every device gets all of an array. Then results are larger, and nothing else says so.
bool gathers(ffi::RemainingArgs const& operands, ffi::RemainingRets const& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    auto const sent = operands.get<ffi::AnyBuffer>(i);
    auto received = results.get<ffi::AnyBuffer>(i);
    if (!sent.has_value() || !received.has_value()) return false;
    if ((*received)->size_bytes() != sent->size_bytes()) return true;
  }
  return false;
}

// Fills in the arrays: all operands but the last two, which are the rank and the counters.
char const* read_arrays(ffi::RemainingArgs const& operands, ffi::RemainingRets const& results,
                        cuda::ExchangeCall* call) {
  if (operands.size() != results.size() + 2) return "needs an array for each result, and two more";
  if (results.size() > kMostExchanged) return "too many arrays";
  call->num_arrays = static_cast<int32_t>(results.size());
  call->gathers = gathers(operands, results);
  for (size_t i = 0; i < results.size(); ++i) {
    auto const sent = operands.get<ffi::AnyBuffer>(i);
    auto received = results.get<ffi::AnyBuffer>(i);
    if (!sent.has_value() || !received.has_value()) return "a buffer is missing";
    auto const bytes = static_cast<int64_t>((*received)->size_bytes());
    auto const parts = call->gathers ? call->shards : 1;
    if (static_cast<int64_t>(sent->size_bytes()) * parts != bytes || bytes % call->shards != 0) {
      return "an array and its result must have equal parts for all devices";
    }
    call->sent[i] = sent->untyped_data();
    call->received[i] = (*received)->untyped_data();
    call->part_bytes[i] = bytes / call->shards;
  }
  return nullptr;
}

bool is_int32(ffi::ErrorOr<ffi::AnyBuffer> const& buffer) {
  return buffer.has_value() && buffer->element_type() == ffi::DataType::S32;
}

char const* read_pieces(IntAttr numbers, int64_t num_counters, cuda::ExchangeCall* call) {
  if (numbers.size() % kNumPieceFields != 0) return "pieces have five numbers each";
  auto const count = numbers.size() / kNumPieceFields;
  if (count > kMostPieces) return "too many pieces";
  call->num_pieces = static_cast<int32_t>(count);
  for (size_t i = 0; i < count; ++i) {
    auto const* const field = &numbers[i * kNumPieceFields];
    auto const array = field[kPieceArray], begin = field[kPieceBegin], room = field[kPieceRoom];
    auto const counter = field[kPieceCounter];
    if (array < 0 || array >= call->num_arrays) return "a piece of no array";
    auto const part = call->part_bytes[array];
    if (begin < 0 || begin > part || room < 0 || room > part - begin || field[kPieceRowBytes] < 0) {
      return "a piece that ends behind its part";
    }
    if (counter >= 0 && counter >= num_counters / call->shards) return "no such counter";
    call->pieces[i] = {begin,
                       field[kPieceRowBytes],
                       room,
                       static_cast<int32_t>(array),
                       static_cast<int32_t>(counter < 0 ? -1 : counter),
                       1,
                       0};
  }
  return nullptr;
}

ffi::Error run(backend::Context context, ffi::RemainingArgs operands, ffi::RemainingRets results,
               IntAttr devices, int64_t shards, IntAttr pieces, bool counted_by_sender) {
  if (!are_groups(devices, shards)) {
    return ffi::Error::InvalidArgument("exchange: devices must be groups of up to 8");
  }
  cuda::ExchangeCall call{};
  call.devices = devices.begin();
  call.num_devices = static_cast<int64_t>(devices.size());
  call.shards = shards;
  call.counted_by_sender = counted_by_sender;
  auto const* problem = read_arrays(operands, results, &call);
  if (problem == nullptr) {
    auto const rank = operands.get<ffi::AnyBuffer>(results.size());
    auto const counters = operands.get<ffi::AnyBuffer>(results.size() + 1);
    if (!is_int32(rank) || rank->element_count() != 1 || !is_int32(counters)) {
      return ffi::Error::InvalidArgument("exchange: the rank and the counters must be int32");
    }
    call.rank = static_cast<int32_t const*>(rank->untyped_data());
    call.counters = static_cast<int32_t const*>(counters->untyped_data());
    problem = read_pieces(pieces, static_cast<int64_t>(counters->element_count()), &call);
  }
  if (problem != nullptr) return ffi::Error::InvalidArgument(std::string("exchange: ") + problem);
  return error_of_peers("exchange", cuda::exchange(call, context.stream));
}

}  // namespace

bool are_groups(IntAttr devices, int64_t shards) {
  return shards >= 1 && shards <= kMostPeers && devices.size() % static_cast<size_t>(shards) == 0;
}

ffi::Error error_of_peers(char const* name, cudaError_t error) {
  if (error == cudaSuccess) return ffi::Error::Success();
  auto const begin = std::string(name) + ": ";
  if (error == cudaErrorInvalidDevice) {
    return ffi::Error::InvalidArgument(
        begin +
        "this GPU is in no group that was prepared; the program was traced for other devices than "
        "those it runs on. Trace it again for this mesh.");
  }
  if (error == cudaErrorInvalidDevicePointer) {
    return ffi::Error::InvalidArgument(
        begin +
        "an array lies outside of the memory that XLA allocated first, which is what processes "
        "share. Use exchange_transport='collectives', or one process.");
  }
  return ffi::Error::Internal(begin + cudaGetErrorString(error));
}

XLA_FFI_Error* exchange(XLA_FFI_CallFrame* frame) {
  static auto* const handler = bind_peers()
                                   .Attr<IntAttr>("pieces")
                                   .Attr<bool>("counted_by_sender")
                                   .To(run, backend::kTraits)
                                   .release();
  return handler->Call(frame);
}

}  // namespace dynemb

#endif
