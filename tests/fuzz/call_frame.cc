// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/call_frame.cc: as much of XLA's runtime as a handler of the CPU needs: errors, calls
// that go on when they return, and a pool whose tasks are threads.
#include "tests/fuzz/call_frame.h"

#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "xla_ffi/handlers/swap_beside.h"

struct XLA_FFI_Error {
  std::string message;
};

struct XLA_FFI_ExecutionContext {
  int64_t num_threads;
  std::vector<std::thread> threads;
};

struct XLA_FFI_Future {
  std::atomic<bool> ended{false};
  XLA_FFI_Error* error = nullptr;
};

namespace dynemb::fuzz {
namespace {

XLA_FFI_Error* create_error(XLA_FFI_Error_Create_Args* args) {
  return new XLA_FFI_Error{args->message};
}

void get_message(XLA_FFI_Error_GetMessage_Args* args) {
  args->message = args->error->message.c_str();
}

void destroy_error(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }

XLA_FFI_Error* schedule(XLA_FFI_ThreadPool_Schedule_Args* args) {
  args->ctx->threads.emplace_back(args->task, args->data);
  return nullptr;
}

XLA_FFI_Error* num_threads(XLA_FFI_ThreadPool_NumThreads_Args* args) {
  *args->num_threads = args->ctx->num_threads;
  return nullptr;
}

XLA_FFI_Error* create_future(XLA_FFI_Future_Create_Args* args) {
  args->future = new XLA_FFI_Future;
  return nullptr;
}

XLA_FFI_Error* set_available(XLA_FFI_Future_SetAvailable_Args* args) {
  args->future->ended = true;
  return nullptr;
}

XLA_FFI_Error* set_error(XLA_FFI_Future_SetError_Args* args) {
  args->future->error = args->error;
  args->future->ended = true;
  return nullptr;
}

// Waits for a call that goes on; returns its error, or null.
XLA_FFI_Error* end_of(XLA_FFI_Future* future) {
  std::unique_ptr<XLA_FFI_Future> const owned(future);
  while (!owned->ended) std::this_thread::yield();
  return owned->error;
}

XLA_FFI_Api make_api() {
  XLA_FFI_Api api{};
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR,
                     XLA_FFI_API_MINOR};
  api.XLA_FFI_Error_Create = create_error;
  api.XLA_FFI_Error_GetMessage = get_message;
  api.XLA_FFI_Error_Destroy = destroy_error;
  api.XLA_FFI_Future_Create = create_future;
  api.XLA_FFI_Future_SetAvailable = set_available;
  api.XLA_FFI_Future_SetError = set_error;
  api.XLA_FFI_ThreadPool_Schedule = schedule;
  api.XLA_FFI_ThreadPool_NumThreads = num_threads;
  return api;
}

XLA_FFI_Handler* handler_of(std::string const& op) {
  static auto const handlers = [] {
    std::map<std::string, XLA_FFI_Handler*> result{{"dynemb_begin_swap", begin_swap},
                                                   {"dynemb_run_swap", run_swap},
                                                   {"dynemb_end_swap", end_swap}};
    for (auto const& each : registrations()) result[each.name] = each.handler;
    return result;
  }();
  return handlers.at("dynemb_" + op);
}

std::vector<XLA_FFI_Buffer> buffers_of(std::vector<Array> const& arrays) {
  std::vector<XLA_FFI_Buffer> buffers;
  for (auto const& array : arrays) {
    XLA_FFI_Buffer buffer{};
    buffer.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
    buffer.dtype = array.dtype;
    buffer.data = array.memory.get();
    buffer.rank = static_cast<int64_t>(array.dims.size());
    buffer.dims = const_cast<int64_t*>(array.dims.data());
    buffers.push_back(buffer);
  }
  return buffers;
}

template <class T>
std::vector<void*> addresses_of(std::vector<T>& items) {
  std::vector<void*> addresses;
  for (auto& item : items) addresses.push_back(&item);
  return addresses;
}

// Attributes as a frame holds them.
struct Attributes {
  std::vector<XLA_FFI_AttrType> types;
  std::vector<XLA_FFI_ByteSpan> spans;
  std::vector<XLA_FFI_ByteSpan*> names;
  std::vector<XLA_FFI_Array> lists;
  std::vector<XLA_FFI_Scalar> scalars;
  std::vector<void*> values;

  explicit Attributes(std::vector<Attribute> const& given) {
    for (auto const& each : given) {
      spans.push_back({each.name.data(), each.name.size()});
      types.push_back(each.is_list ? XLA_FFI_AttrType_ARRAY : XLA_FFI_AttrType_SCALAR);
      auto* const data = each.is_float
                             ? static_cast<void*>(const_cast<float*>(each.floats.data()))
                             : static_cast<void*>(const_cast<int64_t*>(each.integers.data()));
      auto const size = each.is_float ? each.floats.size() : each.integers.size();
      auto const dtype = each.is_float ? XLA_FFI_DataType_F32 : XLA_FFI_DataType_S64;
      lists.push_back({dtype, size, data});
      scalars.push_back({dtype, data});
    }
    for (size_t i = 0; i < given.size(); ++i) {
      names.push_back(&spans[i]);
      values.push_back(given[i].is_list ? static_cast<void*>(&lists[i]) : &scalars[i]);
    }
  }
};

}  // namespace

std::optional<std::string> run(Call const& call) {
  static auto const api = make_api();
  XLA_FFI_ExecutionContext context{call.num_threads, {}};
  auto operands = buffers_of(call.operands), results = buffers_of(call.results);
  auto args = addresses_of(operands), rets = addresses_of(results);
  std::vector<XLA_FFI_ArgType> arg_types(args.size(), XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> ret_types(rets.size(), XLA_FFI_RetType_BUFFER);
  Attributes attributes(call.attributes);

  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &api;
  frame.ctx = &context;
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, static_cast<int64_t>(args.size()),
                arg_types.data(), args.data()};
  frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, static_cast<int64_t>(rets.size()),
                ret_types.data(), rets.data()};
  frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE,
                 nullptr,
                 static_cast<int64_t>(attributes.values.size()),
                 attributes.types.data(),
                 attributes.names.data(),
                 attributes.values.data()};
  auto* error = handler_of(call.op)(&frame);
  for (auto& thread : context.threads) thread.join();
  if (frame.future != nullptr) error = end_of(frame.future);
  if (error == nullptr) return std::nullopt;
  auto message = error->message;
  delete error;
  return message;
}

}  // namespace dynemb::fuzz
