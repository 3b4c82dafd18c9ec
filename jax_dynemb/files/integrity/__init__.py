# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Whether files are as they were written: strict JSON, sizes, checksums, versions.

Plain Python that imports nothing else: jax_dynemb_torch has this folder by a link.
"""

from ._chain import SUFFIX as SUFFIX
from ._chain import Chain as Chain
from ._chain import base_files as base_files
from ._chain import manifest_path as manifest_path
from ._chain import read_chain as read_chain
from ._chain import read_delta_header as read_delta_header
from ._chain import read_table_header as read_table_header
from ._chain import table_of_delta as table_of_delta
from ._errors import DEFAULT_FIX as DEFAULT_FIX
from ._errors import DamagedFileError as DamagedFileError
from ._json import Fields as Fields
from ._json import file_bytes as file_bytes
from ._json import is_whole as is_whole
from ._json import read_json as read_json
from ._side_file import FIX as FIX
from ._side_file import NAME as NAME
from ._side_file import Entry as Entry
from ._side_file import altered as altered
from ._side_file import check_file as check_file
from ._side_file import read_entries as read_entries
from ._side_file import sum_of_json as sum_of_json
from ._side_file import verify_files as verify_files
from ._sums import BLOCK as BLOCK
from ._sums import Advance as Advance
from ._sums import blocks as blocks
from ._sums import pool as pool
from ._sums import sums_of as sums_of
from ._tensor_header import CHECKSUMS as CHECKSUMS
from ._tensor_header import DIGITS as DIGITS
from ._tensor_header import METADATA_KEY as METADATA_KEY
from ._tensor_header import MIXED_INDEX_VERSION as MIXED_INDEX_VERSION
from ._tensor_header import NO_SUM as NO_SUM
from ._tensor_header import SUMS_KEY as SUMS_KEY
from ._tensor_header import Header as Header
from ._tensor_header import header_sum as header_sum
from ._tensor_header import verify as verify
from ._version import FORMAT_VERSION as FORMAT_VERSION
from ._version import check_version as check_version
