# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trained jax_dynemb tables in PyTorch: modules that look up ids of any value."""

from jax_dynemb_torch._collection import (
    EmbeddingBagCollection as EmbeddingBagCollection,
)
from jax_dynemb_torch._embedding import DynamicEmbedding as DynamicEmbedding
from jax_dynemb_torch._embedding import DynamicEmbeddingBag as DynamicEmbeddingBag
from jax_dynemb_torch._integrity import Bucket as Bucket
from jax_dynemb_torch._integrity import DamagedFileError as DamagedFileError
from jax_dynemb_torch._integrity import Redis as Redis
from jax_dynemb_torch._integrity import Socket as Socket
from jax_dynemb_torch._source import Source as Source
from jax_dynemb_torch._source import load as load
from jax_dynemb_torch._source import table_names as table_names
from jax_dynemb_torch._subscriber import Subscriber as Subscriber
from jax_dynemb_torch._subscriber import Version as Version
from jax_dynemb_torch._tensor_train import TTEmbeddingBag as TTEmbeddingBag
from jax_dynemb_torch._version import __version__ as __version__
