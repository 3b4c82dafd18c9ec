# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Whether files are as they were written: strict JSON, sizes, checksums, versions.

Plain Python that imports nothing else: jax_dynemb_torch has this folder by a link.
"""

from .bucket_channel import Bucket as Bucket
from .chain import SUFFIX as SUFFIX
from .chain import Chain as Chain
from .chain import base_files as base_files
from .chain import manifest_path as manifest_path
from .chain import read_chain as read_chain
from .chain import read_delta_header as read_delta_header
from .chain import read_table_header as read_table_header
from .chain import table_of_delta as table_of_delta
from .channel import Channel as Channel
from .channel import FolderChannel as FolderChannel
from .channel import HistoryLostError as HistoryLostError
from .channel import as_channel as as_channel
from .channel import newest as newest
from .errors import DEFAULT_FIX as DEFAULT_FIX
from .errors import DamagedFileError as DamagedFileError
from .follower import Follower as Follower
from .json import FORMAT_VERSION as FORMAT_VERSION
from .json import Fields as Fields
from .json import check_version as check_version
from .json import file_bytes as file_bytes
from .json import is_whole as is_whole
from .json import read_json as read_json
from .publication import DENSE as DENSE
from .publication import TABLES as TABLES
from .publication import Part as Part
from .publication import delta_path as delta_path
from .publication import numbers_in as numbers_in
from .publication import part_fields as part_fields
from .publication import read_part as read_part
from .publication import segment_path as segment_path
from .publication import snapshot_path as snapshot_path
from .publication import split_dense as split_dense
from .publication import train_path as train_path
from .redis_channel import Redis as Redis
from .side_file import FIX as FIX
from .side_file import NAME as NAME
from .side_file import Entry as Entry
from .side_file import altered as altered
from .side_file import check_file as check_file
from .side_file import read_entries as read_entries
from .side_file import sum_of_json as sum_of_json
from .side_file import verify_files as verify_files
from .socket_channel import Listener as Listener
from .socket_channel import Socket as Socket
from .sums import BLOCK as BLOCK
from .sums import Advance as Advance
from .sums import blocks as blocks
from .sums import pool as pool
from .sums import sums_of as sums_of
from .tensor_header import CHECKSUMS as CHECKSUMS
from .tensor_header import DIGITS as DIGITS
from .tensor_header import METADATA_KEY as METADATA_KEY
from .tensor_header import MIXED_INDEX_VERSION as MIXED_INDEX_VERSION
from .tensor_header import NO_SUM as NO_SUM
from .tensor_header import SUMS_KEY as SUMS_KEY
from .tensor_header import Header as Header
from .tensor_header import header_sum as header_sum
from .tensor_header import read_header as read_header
from .tensor_header import verify as verify
