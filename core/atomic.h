// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/atomic.h: relaxed atomics with one meaning on both sides.
//
// Nothing in core/ needs a stronger order: what one phase of an operation publishes is read by the
// next phase only, and phases are separated by a kernel boundary or a thread-pool barrier.
#pragma once

#include <cstdint>

#include "core/macros.h"

namespace dynemb {

// On a GPU the scope is the device: `volatile` would have the scope of the whole system.
DYNEMB_HD uint64_t atomic_load(uint64_t const* address) {
#ifdef __CUDA_ARCH__
  uint64_t value;
  asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(value) : "l"(address));
  return value;
#else
  return __atomic_load_n(address, __ATOMIC_RELAXED);
#endif
}

DYNEMB_HD void atomic_store(uint64_t* address, uint64_t value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.relaxed.gpu.u64 [%0], %1;" : : "l"(address), "l"(value) : "memory");
#else
  __atomic_store_n(address, value, __ATOMIC_RELAXED);
#endif
}

// Returns what was there: `expected` if the swap happened.
DYNEMB_HD uint64_t compare_and_swap(uint64_t* address, uint64_t expected, uint64_t desired) {
#ifdef __CUDA_ARCH__
  return atomicCAS(reinterpret_cast<unsigned long long*>(address), expected, desired);
#else
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return expected;
#endif
}

DYNEMB_HD uint64_t fetch_add(uint64_t* address, uint64_t value) {
#ifdef __CUDA_ARCH__
  return atomicAdd(reinterpret_cast<unsigned long long*>(address), value);
#else
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
#endif
}

DYNEMB_HD uint32_t atomic_load(uint32_t const* address) {
#ifdef __CUDA_ARCH__
  uint32_t value;
  asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
#else
  return __atomic_load_n(address, __ATOMIC_RELAXED);
#endif
}

DYNEMB_HD uint32_t fetch_add(uint32_t* address, uint32_t value) {
#ifdef __CUDA_ARCH__
  return atomicAdd(address, value);
#else
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
#endif
}

DYNEMB_HD uint32_t compare_and_swap(uint32_t* address, uint32_t expected, uint32_t desired) {
#ifdef __CUDA_ARCH__
  return atomicCAS(address, expected, desired);
#else
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return expected;
#endif
}

// Replaces what is there, if the value is larger.
DYNEMB_HD void store_max(uint64_t* address, uint64_t value) {
#ifdef __CUDA_ARCH__
  atomicMax(reinterpret_cast<unsigned long long*>(address), value);
#else
  for (auto seen = atomic_load(address); seen < value;) {
    auto const found = compare_and_swap(address, seen, value);
    if (found == seen) return;
    seen = found;
  }
#endif
}

// Replaces what is there, if the value is smaller.
DYNEMB_HD void store_min(uint64_t* address, uint64_t value) {
#ifdef __CUDA_ARCH__
  atomicMin(reinterpret_cast<unsigned long long*>(address), value);
#else
  for (auto seen = atomic_load(address); seen > value;) {
    auto const found = compare_and_swap(address, seen, value);
    if (found == seen) return;
    seen = found;
  }
#endif
}

}  // namespace dynemb
