// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/host/cuda_runtime_api.h: see cuda_runtime.h.
#pragma once

#include "cuda_runtime.h"
