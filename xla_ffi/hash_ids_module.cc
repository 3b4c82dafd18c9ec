// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0
#include "xla_ffi/hash_ids_module.h"

#ifndef DYNEMB_CUDA

#include <nanobind/ndarray.h>

#include <algorithm>
#include <vector>

#include "cpu/hash_ids.h"

namespace nb = nanobind;

namespace dynemb {
namespace {

template <class Value, int dims = 1>
using Array = nb::ndarray<Value, nb::ndim<dims>, nb::c_contig, nb::device::cpu>;
using Ids = Array<int64_t>;

SipKey key_of(nb::tuple const& words) {
  return {nb::cast<uint64_t>(words[0]), nb::cast<uint64_t>(words[1])};
}

void expect_as_many(size_t values, Ids const& ids) {
  if (values != ids.shape(0)) throw nb::value_error("as many ids as values are needed");
}

void int64s(Array<int64_t const> const& values, nb::tuple const& words, Ids const& ids) {
  expect_as_many(values.shape(0), ids);
  auto const key = key_of(words);
  nb::gil_scoped_release const released;
  cpu::hash_int64s(key, values.data(), static_cast<int64_t>(ids.shape(0)), ids.data());
}

void uint64s(Array<uint64_t const> const& values, nb::tuple const& words, Ids const& ids) {
  expect_as_many(values.shape(0), ids);
  auto const key = key_of(words);
  nb::gil_scoped_release const released;
  cpu::hash_uint64s(key, values.data(), static_cast<int64_t>(ids.shape(0)), ids.data());
}

template <class Offset>
void between_offsets(Array<uint8_t const> const& data, Array<Offset const> const& offsets,
                     nb::tuple const& words, Ids const& ids) {
  expect_as_many(offsets.shape(0) - 1, ids);
  auto const key = key_of(words);
  auto good = false;
  {
    nb::gil_scoped_release const released;
    good = cpu::hash_between_offsets(key, {data.data(), data.shape(0)}, offsets.data(),
                                     static_cast<int64_t>(ids.shape(0)), ids.data());
  }
  if (!good) throw nb::value_error("the offsets of the strings descend or leave their data");
}

void fixed_bytes(Array<uint8_t const, 2> const& data, bool strips_zeros, nb::tuple const& words,
                 Ids const& ids) {
  expect_as_many(data.shape(0), ids);
  auto const key = key_of(words);
  nb::gil_scoped_release const released;
  cpu::hash_fixed_bytes(key, data.data(), static_cast<int64_t>(data.shape(1)), strips_zeros,
                        static_cast<int64_t>(ids.shape(0)), ids.data());
}

int64_t fixed_text(Array<uint32_t const, 2> const& data, nb::tuple const& words, Ids const& ids) {
  expect_as_many(data.shape(0), ids);
  auto const key = key_of(words);
  nb::gil_scoped_release const released;
  return cpu::hash_fixed_text(key, data.data(), static_cast<int64_t>(data.shape(1)),
                              static_cast<int64_t>(ids.shape(0)), ids.data());
}

// Python objects: what they hold is found out with the GIL, a block at a time, and hashed without.
// The tuple keeps them alive, and none of them can change.
class Objects {
 public:
  Objects(nb::tuple const& values, SipKey const& text, SipKey const& integer,
          nb::callable const& other)
      : values_(values), text_(text), integer_(integer), other_(other) {}

  void hash(int64_t* ids) {
    auto const count = static_cast<int64_t>(values_.size());
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      auto const size = std::min(kBlock, count - begin);
      spans_.clear();
      kept_.clear();
      for (int64_t i = 0; i < size; ++i) spans_.push_back(read(item(begin + i), ids[begin + i]));
      nb::gil_scoped_release const released;
      cpu::hash_spans(text_, spans_.data(), size, ids + begin);
    }
  }

 private:
  static constexpr int64_t kBlock = 1 << 17;

  nb::handle item(int64_t i) const {
    return PyTuple_GetItem(values_.ptr(), static_cast<Py_ssize_t>(i));
  }

  // The bytes of text, to be hashed later; or nothing, and the id.
  cpu::Bytes read(nb::handle value, int64_t& id) {
    auto* const object = value.ptr();
    id = -1;
    if (PyUnicode_CheckExact(object)) return text_of(object);
    if (PyLong_Check(object)) {
      id = integer_id(object);
      return {nullptr, 0};
    }
    if (value.is_none()) return {nullptr, 0};
    if (PyBytes_CheckExact(object)) return bytes_of(object);
    // Another type, of NumPy perhaps: Python says which of the above it is, or raises.
    auto known = other_(value);
    auto* const plain = known.ptr();
    if (!PyUnicode_CheckExact(plain) && !PyBytes_CheckExact(plain) && !PyLong_Check(plain) &&
        !known.is_none()) {
      throw nb::type_error("a value became neither str, bytes, int nor None");
    }
    kept_.push_back(std::move(known));
    return read(kept_.back(), id);
  }

  static cpu::Bytes text_of(PyObject* object) {
    Py_ssize_t size = 0;
    auto const* const data = PyUnicode_AsUTF8AndSize(object, &size);
    if (data == nullptr) throw nb::python_error();
    return {reinterpret_cast<unsigned char const*>(data), static_cast<size_t>(size)};
  }

  static cpu::Bytes bytes_of(PyObject* object) {
    char* data = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(object, &data, &size) != 0) throw nb::python_error();
    return {reinterpret_cast<unsigned char const*>(data), static_cast<size_t>(size)};
  }

  int64_t integer_id(PyObject* object) const {
    int overflow = 0;
    auto const value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    if (overflow == 0) return hash_int64(integer_, value);
    nb::bytes const words = nb::cast<nb::bytes>(other_(nb::handle(object)));
    auto const bytes = bytes_of(words.ptr());
    return hash_bytes(integer_, bytes.data, bytes.size);
  }

  nb::tuple const& values_;
  SipKey text_, integer_;
  nb::callable const& other_;
  std::vector<cpu::Bytes> spans_;
  std::vector<nb::object> kept_;
};

void objects(nb::tuple const& values, nb::tuple const& text, nb::tuple const& integer,
             nb::callable const& other, Ids const& ids) {
  expect_as_many(values.size(), ids);
  Objects(values, key_of(text), key_of(integer), other).hash(ids.data());
}

}  // namespace

void add_hash_ids(nb::module_& m) {
  m.def("hash_int64s", &int64s);
  m.def("hash_uint64s", &uint64s);
  m.def("hash_between_offsets", &between_offsets<int32_t>);
  m.def("hash_between_offsets", &between_offsets<int64_t>);
  m.def("hash_fixed_bytes", &fixed_bytes);
  m.def("hash_fixed_text", &fixed_text);
  m.def("hash_objects", &objects);
}

}  // namespace dynemb

#else

namespace dynemb {

void add_hash_ids(nanobind::module_&) {}

}  // namespace dynemb

#endif
