# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of a running program: read as streams of rows, and filled from them."""

from jax_dynemb._src.files.live.imported import Imported as Imported
from jax_dynemb._src.files.live.imported import check_room as check_room
from jax_dynemb._src.files.live.imported import clear_table as clear_table
from jax_dynemb._src.files.live.imported import fill_table as fill_table
from jax_dynemb._src.files.live.imported import lost_rows as lost_rows
from jax_dynemb._src.files.live.imported import no_place as no_place
from jax_dynemb._src.files.live.imported import warn_of_loss as warn_of_loss
from jax_dynemb._src.files.live.read import check_whole as check_whole
from jax_dynemb._src.files.live.read import collection_of as collection_of
from jax_dynemb._src.files.live.read import live_table as live_table
