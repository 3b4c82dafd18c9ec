// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/macros.h: DYNEMB_HD marks a function that means the same on the host and on the device.
#pragma once

#ifdef __CUDACC__
#define DYNEMB_HD __host__ __device__ __forceinline__
#else
#define DYNEMB_HD inline
#endif

// Before a loop: no iteration writes what another reads, so the compiler of the CPU's loops may
// vectorise it without comparing pointers first.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define DYNEMB_INDEPENDENT _Pragma("GCC ivdep")
#else
#define DYNEMB_INDEPENDENT
#endif

// Before a loop of a known number of turns: a GPU's compiler unrolls it, so that an array that it
// walks over stays in registers and its loads do not wait for each other.
#ifdef __CUDA_ARCH__
#define DYNEMB_UNROLLED _Pragma("unroll")
#else
#define DYNEMB_UNROLLED
#endif

// Before a loop: a GPU's compiler keeps it a loop.
#ifdef __CUDA_ARCH__
#define DYNEMB_ROLLED _Pragma("unroll 1")
#else
#define DYNEMB_ROLLED
#endif
