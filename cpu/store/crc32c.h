// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/store/crc32c.h: the checksum of records and footers of a log.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dynemb::cpu::store {

// CRC-32C (Castagnoli) of some bytes; goes on from the checksum of the bytes before, 0 at first.
uint32_t crc32c(uint32_t before, void const* data, size_t size);

// Computes the same without the processor's instruction.
uint32_t crc32c_portable(uint32_t before, void const* data, size_t size);

}  // namespace dynemb::cpu::store
