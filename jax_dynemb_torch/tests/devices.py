# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where tests run: on the CPU, and on a GPU if there is one."""

import torch

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
