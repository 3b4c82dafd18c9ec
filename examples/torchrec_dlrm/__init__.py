# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The names of TorchRec's models and datasets that its examples need, in Flax."""

from torchrec_dlrm.batches import DEFAULT_CAT_NAMES as DEFAULT_CAT_NAMES
from torchrec_dlrm.batches import DEFAULT_INT_NAMES as DEFAULT_INT_NAMES
from torchrec_dlrm.batches import Batch as Batch
from torchrec_dlrm.batches import RandomRecDataset as RandomRecDataset
from torchrec_dlrm.models import DLRM as DLRM
from torchrec_dlrm.models import MLP as MLP
from torchrec_dlrm.models import DenseArch as DenseArch
from torchrec_dlrm.models import DLRMTrain as DLRMTrain
from torchrec_dlrm.models import InteractionArch as InteractionArch
from torchrec_dlrm.models import OverArch as OverArch
from torchrec_dlrm.models import SparseArch as SparseArch
