// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0
#include "xla_ffi/peers_module.h"

#ifdef DYNEMB_CUDA

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "cuda/exchange/launch.h"
#include "cuda/exchange/shared_memory.h"

namespace nb = nanobind;

namespace dynemb {
namespace {

// id, ordinal, name, mailbox, shift, begin and bytes of what is shared
using PeerOfPython = std::tuple<int, int, std::string, uint64_t, int64_t, uint64_t, uint64_t>;
// why not, descriptor, begin, bytes
using MemoryOfPython = std::tuple<std::string, int, uint64_t, uint64_t>;

std::string prepare_peers(std::vector<PeerOfPython> const& members) {
  std::vector<cuda::Peer> peers;
  for (auto const& [id, device, name, mailbox, shift, begin, bytes] : members) {
    peers.push_back({id, device, name, mailbox, shift, begin, bytes});
  }
  nb::gil_scoped_release const released;
  return cuda::prepare_peers(peers);
}

MemoryOfPython share_memory(int device, uint64_t address) {
  cuda::SharedMemory memory;
  auto const problem = cuda::share_memory(device, address, &memory);
  return {problem, memory.fd, memory.begin, memory.bytes};
}

MemoryOfPython make_mailbox(std::vector<int> const& devices) {
  cuda::SharedMemory memory;
  auto const problem = cuda::make_shared_memory(devices, cuda::mailbox_bytes(), &memory);
  return {problem, memory.fd, memory.begin, memory.bytes};
}

// why not, begin, the word at an offset
std::tuple<std::string, uint64_t, uint64_t> map_memory(std::vector<int> const& devices, int fd,
                                                       uint64_t bytes, uint64_t offset) {
  cuda::SharedMemory memory{fd, 0, bytes};
  uint64_t word = 0;
  auto const problem = cuda::map_memory(devices, offset, &memory, &word);
  return {problem, memory.begin, word};
}

}  // namespace

void add_peers(nb::module_& m) {
  m.def("prepare_peers", &prepare_peers);
  m.def("share_memory", &share_memory);
  m.def("make_mailbox", &make_mailbox);
  m.def("map_memory", &map_memory);
}

}  // namespace dynemb

#else

namespace dynemb {

void add_peers(nanobind::module_& /*m*/) {}

}  // namespace dynemb

#endif
