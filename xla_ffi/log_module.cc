// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0
#include "xla_ffi/log_module.h"

#ifndef DYNEMB_CUDA

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "cpu/store/crc32c.h"
#include "cpu/store/log.h"

namespace nb = nanobind;

namespace dynemb {
namespace {

using cpu::store::DamagedFile;
using cpu::store::FailedCall;
using cpu::store::Log;

template <class Value, int dims = 1>
using Array = nb::ndarray<Value, nb::ndim<dims>, nb::c_contig, nb::device::cpu>;
using Keys = Array<uint64_t const>;
using NewArray = nb::ndarray<nb::numpy, uint64_t, nb::ndim<1>>;

void expect_as_many(size_t rows, Keys const& keys) {
  if (rows != keys.shape(0)) throw nb::value_error("as many rows as keys are needed");
}

NewArray to_numpy(std::vector<uint64_t> values) {
  auto* const kept = new std::vector<uint64_t>(std::move(values));
  nb::capsule const owner(
      kept, [](void* data) noexcept { delete static_cast<std::vector<uint64_t>*>(data); });
  return {kept->data(), {kept->size()}, owner};
}

// Calls without the GIL, so that other threads go on while a disk is busy.
template <class Function>
auto released(Function const& function) {
  nb::gil_scoped_release const no_gil;
  return function();
}

void open_segment(Log& log, std::string const& path, nb::tuple const& finished, Keys const& live) {
  cpu::store::Finished const known{nb::cast<uint64_t>(finished[0]), nb::cast<uint64_t>(finished[1]),
                                   nb::cast<uint64_t>(finished[2]),
                                   nb::cast<uint32_t>(finished[3])};
  std::vector<uint64_t> bits(live.data(), live.data() + live.shape(0));
  released([&] { log.open_segment(path, known, std::move(bits)); });
}

nb::tuple finish_segment(Log& log) {
  auto const done = released([&] { return log.finish_segment(); });
  return nb::make_tuple(done.number, done.bytes, done.records, done.tail_crc);
}

void put(Log& log, Keys const& keys, Array<uint8_t const, 2> const& packed) {
  expect_as_many(packed.shape(0), keys);
  released([&] { log.put(keys.data(), packed.data(), keys.shape(0)); });
}

void get(Log const& log, Keys const& keys, Array<bool> const& found,
         Array<uint8_t, 2> const& packed) {
  expect_as_many(packed.shape(0), keys);
  expect_as_many(found.shape(0), keys);
  released([&] { log.get(keys.data(), keys.shape(0), found.data(), packed.data()); });
}

void contains(Log const& log, Keys const& keys, Array<bool> const& found) {
  expect_as_many(found.shape(0), keys);
  released([&] { log.contains(keys.data(), keys.shape(0), found.data()); });
}

uint64_t discard(Log& log, Keys const& keys) {
  return released([&] { return log.discard(keys.data(), keys.shape(0)); });
}

nb::list usage(Log const& log) {
  nb::list all;
  for (auto const& each : log.usage()) {
    all.append(nb::make_tuple(each.number, each.bytes, each.records, each.live, each.finished));
  }
  return all;
}

// C++ knows what happened; Python has the classes for it.
void translate(std::exception_ptr const& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (DamagedFile const& damaged) {
    auto const type = nb::module_::import_("jax_dynemb").attr("DamagedFileError");
    auto const raised = type(damaged.path, damaged.problem);
    PyErr_SetObject(type.ptr(), raised.ptr());
  } catch (FailedCall const& failed) {
    errno = failed.code;
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, failed.path.c_str());
  }
}

}  // namespace

void add_log(nb::module_& m) {
  nb::set_leak_warnings(false);  // a log may live until the process ends
  nb::register_exception_translator(translate);
  m.attr("log_header_bytes") = cpu::store::kHeaderBytes;
  m.attr("log_tail_bytes") = cpu::store::kTailBytes;
  m.def("crc32c", [](Array<uint8_t const> const& data) {
    return cpu::store::crc32c(0, data.data(), data.shape(0));
  });
  nb::class_<Log>(m, "Log")
      .def("__init__",
           [](Log* self, uint64_t store, uint64_t payload, std::string const& text, uint64_t seed,
              int threads) { new (self) Log({store, payload, text}, seed, threads); })
      .def("open_segment", &open_segment)
      .def("start_segment",
           [](Log& log, std::string const& path, uint64_t number) {
             released([&] { log.start_segment(path, number); });
           })
      .def("finish_segment", &finish_segment)
      .def("sync_segment",
           [](Log const& log, uint64_t number) { released([&] { log.sync_segment(number); }); })
      .def("drop_segment", &Log::drop_segment)
      .def("put", &put)
      .def("get", &get)
      .def("contains", &contains)
      .def("discard", &discard)
      .def("usage", &usage)
      .def("current_bytes", &Log::current_bytes)
      .def("live_bits",
           [](Log const& log, uint64_t number) { return to_numpy(log.live_bits(number)); })
      .def("live_keys",
           [](Log const& log, uint64_t number) { return to_numpy(log.live_keys(number)); })
      .def("keys", [](Log const& log) { return to_numpy(log.keys()); })
      .def("rows", &Log::rows)
      .def("digest", &Log::digest)
      .def("index_bytes", &Log::index_bytes);
}

}  // namespace dynemb

#else

namespace dynemb {

void add_log(nanobind::module_&) {}

}  // namespace dynemb

#endif
