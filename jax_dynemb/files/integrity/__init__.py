# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Whether files are as they were written: strict JSON, sizes, checksums, versions.

Plain Python, so that jax_dynemb_torch has a copy.
"""

from jax_dynemb.files.integrity._json import Fields as Fields
from jax_dynemb.files.integrity._json import file_bytes as file_bytes
from jax_dynemb.files.integrity._json import file_inside as file_inside
from jax_dynemb.files.integrity._json import is_whole as is_whole
from jax_dynemb.files.integrity._json import parse_json as parse_json
from jax_dynemb.files.integrity._json import read_json as read_json
from jax_dynemb.files.integrity._side_file import FIX as FIX
from jax_dynemb.files.integrity._side_file import NAME as NAME
from jax_dynemb.files.integrity._side_file import Entry as Entry
from jax_dynemb.files.integrity._side_file import altered as altered
from jax_dynemb.files.integrity._side_file import check_file as check_file
from jax_dynemb.files.integrity._side_file import read_entries as read_entries
from jax_dynemb.files.integrity._side_file import sum_of_json as sum_of_json
from jax_dynemb.files.integrity._side_file import verify_files as verify_files
from jax_dynemb.files.integrity._sums import BLOCK as BLOCK
from jax_dynemb.files.integrity._sums import Advance as Advance
from jax_dynemb.files.integrity._sums import blocks as blocks
from jax_dynemb.files.integrity._sums import pool as pool
from jax_dynemb.files.integrity._sums import sums_of as sums_of
from jax_dynemb.files.integrity._version import FORMAT_VERSION as FORMAT_VERSION
from jax_dynemb.files.integrity._version import check_version as check_version
