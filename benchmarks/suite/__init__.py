# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the suites of `benchmarks/bench_suite.py`: see docs/performance.md."""
