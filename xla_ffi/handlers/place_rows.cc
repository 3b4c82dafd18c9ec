// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#ifdef DYNEMB_CUDA

#include <limits>

#include "cuda/exchange/launch.h"
#include "xla_ffi/backend.h"
#include "xla_ffi/buffers.h"
#include "xla_ffi/handlers/exchange.h"

namespace dynemb {
namespace {

// Behind the arrays: the rank, the order, the numbers, and where those of each owner begin and end.
constexpr size_t kOthers = 5;

using Operands = ffi::RemainingArgs;
using Results = ffi::RemainingRets;

char const* read_arrays(Operands const& operands, cuda::PlaceRowsCall* call) {
  if (operands.size() < kOthers) return "needs an order, numbers and where they begin and end";
  auto const count = operands.size() - kOthers;
  if (count > kMostPlacedArrays) return "too many arrays";
  call->num_arrays = static_cast<int32_t>(count);
  for (size_t i = 0; i < count; ++i) {
    auto const sent = operands.get<ffi::AnyBuffer>(i);
    if (!sent.has_value()) return "a buffer is missing";
    auto const bytes = static_cast<int64_t>(sent->size_bytes());
    if (bytes % call->shards != 0) return "an array must have equal parts for all devices";
    call->sent[i] = sent->untyped_data();
    call->part_bytes[i] = bytes / call->shards;
  }
  return nullptr;
}

// Returns null if it is not int32, or has another size; any size fits if that is negative.
int32_t const* read_numbers(Operands const& operands, size_t index, int64_t size, int64_t* count) {
  auto const buffer = operands.get<ffi::AnyBuffer>(index);
  if (!buffer.has_value() || buffer->element_type() != ffi::DataType::S32) return nullptr;
  auto const own = static_cast<int64_t>(buffer->element_count());
  if (size >= 0 && own != size) return nullptr;
  if (count != nullptr) *count = own;
  return static_cast<int32_t const*>(buffer->untyped_data());
}

char const* read_tables(IntAttr numbers, cuda::PlaceRowsCall* call) {
  auto const count = numbers.size() / kNumPlacedTableFields;
  if (numbers.size() % kNumPlacedTableFields != 0) return "tables have four numbers each";
  if (count > kMostPlacedTables) return "too many tables";
  call->num_tables = static_cast<int32_t>(count);
  for (size_t t = 0; t < count; ++t) {
    auto const* const field = &numbers[t * kNumPlacedTableFields];
    auto const array = field[kPlacedArray], begin = field[kPlacedBegin];
    auto const row_bytes = field[kPlacedRowBytes], room = field[kPlacedRoom];
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    if (array < 0 || array >= call->num_arrays) return "a table of no array";
    if (row_bytes < 1 || row_bytes > kMost || room < 0 || room > kMost) return "a table's sizes";
    auto const part = call->part_bytes[array];
    if (begin < 0 || begin > part || room > (part - begin) / row_bytes) {
      return "a table that ends behind its part";
    }
    call->tables[t] = {begin, static_cast<int32_t>(row_bytes), static_cast<int32_t>(room),
                       static_cast<int32_t>(array)};
  }
  return nullptr;
}

// The rows of all positions of a span must lie in its result.
char const* read_spans(IntAttr numbers, Results const& results, cuda::PlaceRowsCall* call) {
  auto const count = numbers.size() / kNumSpanFields;
  if (numbers.size() % kNumSpanFields != 0) return "spans have four numbers each";
  if (count > kMostSpans || (count == 0) != (call->num_ids == 0)) return "a wrong number of spans";
  call->num_spans = static_cast<int32_t>(count);
  for (size_t s = 0; s < count; ++s) {
    auto const* const field = &numbers[s * kNumSpanFields];
    auto const begin = field[kSpanBegin];
    auto const end = s + 1 < count ? field[kNumSpanFields + kSpanBegin] : call->num_ids;
    if ((s == 0 && begin != 0) || begin < 0 || end < begin) return "spans must follow each other";
    auto const table = field[kSpanTable], first = field[kSpanRow];
    if (table < 0 || table >= call->num_tables) return "a span of no table";
    auto const index = field[kSpanResult];
    call->spans[s] = {nullptr, static_cast<uint32_t>(begin), static_cast<int32_t>(table)};
    if (index == -1) continue;
    if (index < 0 || index >= static_cast<int64_t>(results.size())) return "a span of no result";
    auto result = results.get<ffi::AnyBuffer>(static_cast<size_t>(index));
    if (!result.has_value()) return "a buffer is missing";
    auto const row_bytes = call->tables[table].row_bytes;
    auto const rows = static_cast<int64_t>((*result)->size_bytes()) / row_bytes;
    if (first < 0 || first > rows || end - begin > rows - first) {
      return "a span that ends behind its result";
    }
    call->spans[s].rows = static_cast<char*>((*result)->untyped_data()) + first * row_bytes;
  }
  return nullptr;
}

char const* read_call(Operands const& operands, Results const& results, IntAttr tables,
                      IntAttr spans, cuda::PlaceRowsCall* call) {
  auto const* problem = read_arrays(operands, call);
  if (problem == nullptr) problem = read_tables(tables, call);
  if (problem != nullptr) return problem;
  auto index = operands.size() - kOthers;
  auto const segments = call->num_tables * call->shards;
  call->rank = read_numbers(operands, index++, 1, nullptr);
  call->order = read_numbers(operands, index++, -1, &call->num_ids);
  call->unique_of = read_numbers(operands, index++, call->num_ids, nullptr);
  call->begin = read_numbers(operands, index++, segments, nullptr);
  call->end = read_numbers(operands, index++, segments, nullptr);
  for (auto const* const each :
       {call->rank, call->order, call->unique_of, call->begin, call->end}) {
    if (each == nullptr) return "an operand is not int32, or of another size";
  }
  return read_spans(spans, results, call);
}

ffi::Error run(backend::Context context, Operands operands, Results results, IntAttr devices,
               int64_t shards, IntAttr tables, IntAttr spans) {
  if (!are_groups(devices, shards)) {
    return ffi::Error::InvalidArgument("place_rows: devices must be groups of up to 8");
  }
  cuda::PlaceRowsCall call{};
  call.devices = devices.begin();
  call.num_devices = static_cast<int64_t>(devices.size());
  call.shards = shards;
  auto const* const problem = read_call(operands, results, tables, spans, &call);
  if (problem != nullptr) return ffi::Error::InvalidArgument(std::string("place_rows: ") + problem);
  return error_of_peers("place_rows", cuda::place_rows(call, context.stream));
}

}  // namespace

XLA_FFI_Error* place_rows(XLA_FFI_CallFrame* frame) {
  static auto* const handler = ffi::Ffi::Bind()
                                   .Ctx<backend::Context>()
                                   .RemainingArgs()
                                   .RemainingRets()
                                   .Attr<IntAttr>("devices")
                                   .Attr<int64_t>("shards")
                                   .Attr<IntAttr>("tables")
                                   .Attr<IntAttr>("spans")
                                   .To(run, backend::kTraits)
                                   .release();
  return handler->Call(frame);
}

}  // namespace dynemb

#endif
