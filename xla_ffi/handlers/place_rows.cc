// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#ifdef DYNEMB_CUDA

#include <algorithm>
#include <limits>

#include "cuda/exchange/launch.h"
#include "xla_ffi/backend.h"
#include "xla_ffi/buffers.h"
#include "xla_ffi/handlers/exchange.h"

namespace dynemb {
namespace {

// Behind the arrays: the rank, the order, the numbers, and where those of each owner begin and end.
// Where rows are read from tables, their arrays and the slots stand before that.
constexpr size_t kOthers = 5;

using Operands = ffi::RemainingArgs;
using Results = ffi::RemainingRets;

char const* read_arrays(Operands const& operands, size_t others, cuda::PlaceRowsCall* call) {
  if (operands.size() < others) return "needs an order, numbers and where they begin and end";
  auto const count = operands.size() - others;
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

// How many arrays of tables there are.
size_t count_stored(IntAttr numbers) {
  int64_t most = -1;
  for (size_t i = kStoredArray; i < numbers.size(); i += kNumStoredTableFields) {
    most = std::max(most, std::min<int64_t>(numbers[i], kMostStoredArrays));
  }
  return static_cast<size_t>(most + 1);
}

// The arrays of tables begin at operand `index`. Slots are those of all places of all devices.
char const* read_stored(Operands const& operands, size_t index, IntAttr numbers,
                        cuda::PlaceRowsCall* call) {
  auto const count = count_stored(numbers);
  if (numbers.size() != static_cast<size_t>(call->num_tables) * kNumStoredTableFields) {
    return "four numbers say where each table has its rows";
  }
  if (count < 1 || count > kMostStoredArrays) return "a wrong number of arrays of tables";
  call->num_stored_arrays = static_cast<int32_t>(count);
  int64_t bytes[kMostStoredArrays], num_slots = 0;
  for (size_t i = 0; i < count; ++i) {
    auto const array = operands.get<ffi::AnyBuffer>(index + i);
    if (!array.has_value()) return "a buffer is missing";
    bytes[i] = static_cast<int64_t>(array->size_bytes());
    call->stored_arrays[i] = array->untyped_data();
  }
  call->slots = read_numbers(operands, index + count, -1, &num_slots);
  if (call->slots == nullptr) return "slots are not int32";
  if (num_slots > std::numeric_limits<int32_t>::max()) return "too many slots";
  for (int32_t t = 0; t < call->num_tables; ++t) {
    auto const* const field = &numbers[static_cast<size_t>(t) * kNumStoredTableFields];
    auto const array = field[kStoredArray], place = field[kStoredFirstPlace];
    auto const first = field[kStoredFirstRow], rows = field[kStoredRows];
    auto const& table = call->tables[t];
    auto const places = call->shards * table.room;
    if (array < 0) return "a table in no array";
    if (place < 0 || places > num_slots || place > num_slots - places) {
      return "a table with more places than slots";
    }
    auto const room = bytes[array] / table.row_bytes;
    if (first < 0 || first > room || rows < 0 || rows > room - first) {
      return "a table that ends behind its array";
    }
    call->stored[t] = {static_cast<int32_t>(array), static_cast<int32_t>(place), first, rows};
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

// What both calls have; `stored` operands are arrays of tables and slots.
char const* read_call(Operands const& operands, size_t stored, Results const& results,
                      IntAttr tables, IntAttr spans, cuda::PlaceRowsCall* call) {
  auto const* problem = read_arrays(operands, kOthers + stored, call);
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

// The last result of a call that reads tables.
char const* read_done(Results const& results, cuda::PlaceRowsCall* call) {
  auto done = results.get<ffi::AnyBuffer>(results.size() - 1);
  if (!done.has_value() || (*done)->element_type() != ffi::DataType::S32 ||
      (*done)->element_count() != 1) {
    return "the last result must be int32[1]";
  }
  call->done = static_cast<int32_t*>((*done)->untyped_data());
  return nullptr;
}

char const* begin_call(IntAttr devices, int64_t shards, cuda::PlaceRowsCall* call) {
  if (!are_groups(devices, shards)) return "devices must be groups of up to 8";
  call->devices = devices.begin();
  call->num_devices = static_cast<int64_t>(devices.size());
  call->shards = shards;
  return nullptr;
}

ffi::Error run_call(char const* name, char const* problem, cuda::PlaceRowsCall const& call,
                    cudaStream_t stream) {
  if (problem != nullptr) {
    return ffi::Error::InvalidArgument(std::string(name) + ": " + problem);
  }
  return error_of_peers(name, cuda::place_rows(call, stream));
}

ffi::Error run(backend::Context context, Operands operands, Results results, IntAttr devices,
               int64_t shards, IntAttr tables, IntAttr spans) {
  cuda::PlaceRowsCall call{};
  auto const* problem = begin_call(devices, shards, &call);
  if (problem == nullptr) problem = read_call(operands, 0, results, tables, spans, &call);
  return run_call("place_rows", problem, call, context.stream);
}

// The last result is int32[1].
ffi::Error run_stored(backend::Context context, Operands operands, Results results, IntAttr devices,
                      int64_t shards, IntAttr tables, IntAttr spans, IntAttr stored) {
  cuda::PlaceRowsCall call{};
  auto const others = count_stored(stored) + 1;
  auto const* problem = begin_call(devices, shards, &call);
  if (problem == nullptr) problem = read_call(operands, others, results, tables, spans, &call);
  if (problem == nullptr) {
    auto const index = operands.size() - kOthers - others;
    problem = read_stored(operands, index, stored, &call);
  }
  if (problem == nullptr) problem = read_done(results, &call);
  return run_call("place_stored_rows", problem, call, context.stream);
}

auto bind_placed() { return bind_peers().Attr<IntAttr>("tables").Attr<IntAttr>("spans"); }

}  // namespace

XLA_FFI_Error* place_rows(XLA_FFI_CallFrame* frame) {
  static auto* const handler = bind_placed().To(run, backend::kTraits).release();
  return handler->Call(frame);
}

XLA_FFI_Error* place_stored_rows(XLA_FFI_CallFrame* frame) {
  static auto* const handler =
      bind_placed().Attr<IntAttr>("stored").To(run_stored, backend::kTraits).release();
  return handler->Call(frame);
}

}  // namespace dynemb

#endif
