// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/exchange/shared_memory.h: memory of a GPU that several processes of one host map.
//
// XLA makes its memory by cuMemCreate, so that a file descriptor of it can be sent to another
// process. That one maps the memory at an address of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dynemb::cuda {

struct SharedMemory {
  int fd = -1;  // the caller closes it
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

// Finds the allocation that an address of a device lies in, and makes a descriptor of it. Returns
// why there is none; empty if there is one. So do all of these.
std::string share_memory(int device, uint64_t address, SharedMemory* memory);

// Makes zeroed memory on the first of some devices that all of them reach.
std::string make_shared_memory(std::vector<int> const& devices, uint64_t bytes,
                               SharedMemory* memory);

// Maps another process's memory where some devices reach it, for good, and reads the eight bytes at
// an offset, by which the caller tells whether it is the memory that was meant.
std::string map_memory(std::vector<int> const& devices, uint64_t offset, SharedMemory* memory,
                       uint64_t* word);

}  // namespace dynemb::cuda
