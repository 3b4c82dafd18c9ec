# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every reader of jax_dynemb_torch, for the files of corpus.py. Without JAX."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import jax_dynemb_torch as jdt
from jax_dynemb_torch import DamagedFileError as DamagedFileError

IDS = torch.cat([torch.arange(-1, 4096), (1 << torch.arange(13, 62)) + 1])


class Reader(NamedTuple):
    """As in corpus.py."""

    corpus: str
    read: Callable[[Path], Any]


def loaded(path: Path) -> Any:
    """Rows of all tables, and how they are used."""
    result = []
    for name in jdt.table_names(path):
        source = jdt.load(path, name)
        module = jdt.DynamicEmbedding(source)
        ids = torch.cat([IDS, module.snapshot.base.keys[:-2]])
        result.append((name, source.features, source.pooling, module(ids).numpy()))
        overlay = module.snapshot.overlay
        if overlay is not None:
            result.append(module(overlay.keys[:-2]).numpy())
    return result


def applied(path: Path) -> Any:
    """Deltas onto a table from a file."""
    sound = path.parent.parent / "sound" / "export_float32" / "cat.safetensors"
    module = jdt.DynamicEmbedding(sound)
    before = module.snapshot
    try:
        module.apply_delta(path)
    except Exception:
        assert module.snapshot is before, "a failed delta changed the table"
        raise
    overlay = module.snapshot.overlay
    ids = IDS if overlay is None else torch.cat([IDS, overlay.keys[:-2]])
    return module(ids).detach().numpy()


def collection(path: Path) -> Any:
    """All tables behind their features."""
    bags = jdt.EmbeddingBagCollection(path)
    ids = IDS[: len(IDS) // 8 * 8].view(-1, 8)
    rows = bags({name: ids for table in bags.features.values() for name in table})
    return {name: each.numpy() for name, each in rows.items()}


def digest(result: Any) -> str:
    """Digests dicts, lists, arrays, numbers and strings."""
    found = hashlib.sha256()

    def add(each: Any) -> None:
        if isinstance(each, dict):
            for name in sorted(each):
                found.update(repr(name).encode())
                add(each[name])
        elif isinstance(each, list | tuple):
            for inner in each:
                add(inner)
        elif isinstance(each, np.ndarray):
            found.update(f"{each.dtype}{each.shape}".encode() + each.tobytes())
        else:
            found.update(repr(each).encode())

    add(result)
    return found.hexdigest()


READERS = {
    "torch load": Reader("export_float32", loaded),
    "torch int8": Reader("export_int8", loaded),
    "torch apply_delta": Reader("export_float32", applied),
    "torch collection": Reader("export_int8", collection),
    "torch dump": Reader("dump", loaded),
}
