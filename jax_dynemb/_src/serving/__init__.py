# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes trained rows while steps run, and follows what is published."""

from jax_dynemb._src.files.integrity import Bucket as Bucket
from jax_dynemb._src.files.integrity import Channel as Channel
from jax_dynemb._src.files.integrity import Listener as Listener
from jax_dynemb._src.files.integrity import Redis as Redis
from jax_dynemb._src.files.integrity import Socket as Socket
from jax_dynemb._src.serving.publisher import Publisher as Publisher
from jax_dynemb._src.serving.subscriber import Subscriber as Subscriber
from jax_dynemb._src.serving.subscriber import Version as Version
