# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Files that appear complete or not at all, and what is shown meanwhile."""

from jax_dynemb._src.files.disk.drafts import Presence as Presence
from jax_dynemb._src.files.disk.drafts import one_at_a_time as one_at_a_time
from jax_dynemb._src.files.disk.drafts import remove_left_behind as remove_left_behind
from jax_dynemb._src.files.disk.files import Background as Background
from jax_dynemb._src.files.disk.files import disk_errors as disk_errors
from jax_dynemb._src.files.disk.files import library_errors as library_errors
from jax_dynemb._src.files.disk.files import new_directory as new_directory
from jax_dynemb._src.files.disk.files import new_file as new_file
from jax_dynemb._src.files.disk.files import sync as sync
from jax_dynemb._src.files.disk.progress import progress_bar as progress_bar
from jax_dynemb._src.files.disk.write_side_file import RunningSums as RunningSums
from jax_dynemb._src.files.disk.write_side_file import entry_of as entry_of
from jax_dynemb._src.files.disk.write_side_file import write_json as write_json
from jax_dynemb._src.files.disk.write_side_file import (
    write_side_file as write_side_file,
)
