# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables in files: one folder per format, and what the formats share.

``checkpoint``, ``safetensors``, ``dynamicemb``, ``parquet`` and ``program`` each hold
the reader and the writer of one format. ``integrity`` reads and checks JSON, sizes and
checksums. ``disk`` writes files that appear complete or not at all. ``live`` streams
the rows of tables of a running program, and fills such tables.
"""
