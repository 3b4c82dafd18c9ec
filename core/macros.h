// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/macros.h: DYNEMB_HD marks a function that means the same on the host and on the device.
#pragma once

#ifdef __CUDACC__
#define DYNEMB_HD __host__ __device__ __forceinline__
#else
#define DYNEMB_HD inline
#endif
