# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Connects the processes of a job; each prints the numbers of all.

Started by test_processes.py, with the variables of a launcher set.
"""

import json

import jax
import numpy as np
from jax.experimental import multihost_utils

import jax_dynemb as jde

if __name__ == "__main__":
    jde.distributed.ensure_initialized()
    me = np.array([jax.process_index()])
    everybody = multihost_utils.process_allgather(me).reshape(-1).tolist()
    print("RESULT " + json.dumps({"process": int(me[0]), "everybody": everybody}))
