// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/isa.h: a loop compiled once for each instruction set of the build (DYNEMB_ISAS of
// CMake); the machine's best is chosen when it runs.
//
// The loops are plain C++ for any processor. `with_isa` inlines the whole loop ("flatten") into
// functions for AVX2 and AVX-512, where the compiler vectorises it again for that set; nothing
// outside these functions uses more than the baseline, so the binary runs on every x86-64. FMA is
// left out on purpose: rows must have the same bits on every machine.
//
// A copy of a loop costs the compiler far more time than the loop itself. So what is rare is
// declared noinline and stays out of the copies. Prefetches are not rare: as calls they take 7 % of
// an update.
#pragma once

#include <type_traits>

namespace dynemb::cpu {

enum class Isa : int { kPortable = 0, kAvx2 = 1, kAvx512 = 2 };

template <Isa isa>
using IsaConstant = std::integral_constant<Isa, isa>;

// Returns the best instruction set that this machine and this build have. DYNEMB_CPU_ISA=portable,
// avx2 or avx512 in the environment selects a lesser one. Decided once.
Isa isa_in_use();

// DYNEMB_PORTABLE removes everything that is written for x86, and DYNEMB_WITHOUT_AVX2 and
// DYNEMB_WITHOUT_AVX512 the copies for these sets.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(DYNEMB_PORTABLE)
#define DYNEMB_X86 1
#define DYNEMB_AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt,f16c")))
#define DYNEMB_AVX512                                   \
  __attribute__((                                       \
      target("avx2,bmi,bmi2,lzcnt,popcnt,f16c,avx512f," \
             "avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#if defined(DYNEMB_X86) && !defined(DYNEMB_WITHOUT_AVX2)
#define DYNEMB_AVX2_LOOPS 1
#endif
#if defined(DYNEMB_X86) && !defined(DYNEMB_WITHOUT_AVX512)
#define DYNEMB_AVX512_LOOPS 1
#endif

namespace detail {

#ifdef DYNEMB_AVX2_LOOPS
template <class Body>
DYNEMB_AVX2 __attribute__((flatten, noinline)) void run_avx2(Body const& body) {
  body(IsaConstant<Isa::kAvx2>{});
}
#endif

#ifdef DYNEMB_AVX512_LOOPS
template <class Body>
DYNEMB_AVX512 __attribute__((flatten, noinline)) void run_avx512(Body const& body) {
  body(IsaConstant<Isa::kAvx512>{});
}
#endif

}  // namespace detail

// Calls body(IsaConstant<...>{}). It should hold a whole loop: what it calls is inlined into it.
template <class Body>
void with_isa(Body const& body) {
#ifdef DYNEMB_AVX512_LOOPS
  if (isa_in_use() == Isa::kAvx512) return detail::run_avx512(body);
#endif
#ifdef DYNEMB_AVX2_LOOPS
  if (isa_in_use() == Isa::kAvx2) return detail::run_avx2(body);
#endif
  body(IsaConstant<Isa::kPortable>{});
}

}  // namespace dynemb::cpu
