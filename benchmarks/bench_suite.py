# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Times lookups and training steps beside targets, byte floors and peers.

    python benchmarks/bench_suite.py --optimizer adam --nnx
    python benchmarks/bench_suite.py --suite all --json run.json --plot run.png

docs/performance.md explains suites, workloads and columns.
"""

import sys

from suite.command import main

if __name__ == "__main__":
    sys.exit(main())
