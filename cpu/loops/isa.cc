// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/isa.cc: which instruction set the loops use.
#include "cpu/loops/isa.h"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace dynemb::cpu {
namespace {

// Chooses among the instruction sets of the build.
Isa best_isa() {
#ifdef DYNEMB_X86
  __builtin_cpu_init();
  [[maybe_unused]] auto const avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt") &&
      __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("f16c");
  [[maybe_unused]] auto const avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
#ifdef DYNEMB_AVX512_LOOPS
  if (avx2 && avx512) return Isa::kAvx512;
#endif
#ifdef DYNEMB_AVX2_LOOPS
  if (avx2) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

Isa wanted_isa() {
  auto const* const value = std::getenv("DYNEMB_CPU_ISA");
  std::string const name = value == nullptr ? "" : value;
  if (name == "portable") return Isa::kPortable;
  if (name == "avx2") return Isa::kAvx2;
  return Isa::kAvx512;
}

}  // namespace

Isa isa_in_use() {
  static Isa const isa = std::min(best_isa(), wanted_isa());
  return isa;
}

}  // namespace dynemb::cpu
