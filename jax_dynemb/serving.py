# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A trained table on its way to those who serve it: publisher and subscriber."""

from jax_dynemb._src.serving import Bucket as Bucket
from jax_dynemb._src.serving import Channel as Channel
from jax_dynemb._src.serving import Listener as Listener
from jax_dynemb._src.serving import Publisher as Publisher
from jax_dynemb._src.serving import Redis as Redis
from jax_dynemb._src.serving import Socket as Socket
from jax_dynemb._src.serving import Subscriber as Subscriber
from jax_dynemb._src.serving import Version as Version
