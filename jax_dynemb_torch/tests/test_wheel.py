# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A wheel built from the source archive alone reads files like the checkout.

``_integrity`` is a link to a folder of jax_dynemb, so an archive must hold its files.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np

from known import GOLDEN, KEYS, table

PROJECT = Path(__file__).resolve().parents[1]
READ = """
import numpy, sys, torch, jax_dynemb_torch
from jax_dynemb_torch import DynamicEmbedding, _integrity
print(jax_dynemb_torch.__file__)
print(_integrity.__file__)
rows = DynamicEmbedding(sys.argv[1])(torch.tensor(numpy.load(sys.argv[2])))
numpy.save(sys.argv[3], rows.numpy())
try:
    DynamicEmbedding(sys.argv[4])
except jax_dynemb_torch.DamagedFileError as error:
    print(error.path)
"""


def build(what: str, source: Path, folder: Path) -> Path:
    """Builds an sdist or a wheel as pip does, and returns the file."""
    folder.mkdir()
    code = (
        f"from setuptools import build_meta; build_meta.build_{what}({str(folder)!r})"
    )
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True)
    (built,) = folder.iterdir()
    return built


def test_a_wheel_made_without_the_repository_reads_files(tmp_path):
    with tarfile.open(build("sdist", PROJECT, tmp_path / "sdist")) as archive:
        assert not [each.name for each in archive if each.issym() or each.islnk()]
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    wheel = build("wheel", source, tmp_path / "wheel")
    shutil.rmtree(source)
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)

    exports = shutil.copytree(GOLDEN / "float32", tmp_path / "exports")
    damaged = shutil.copytree(exports, tmp_path / "damaged") / "items.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    ids, rows = tmp_path / "ids.npy", tmp_path / "rows.npy"
    np.save(ids, KEYS)
    file = exports / "items.safetensors"
    done = subprocess.run(
        [sys.executable, "-P", "-c", READ, *map(str, (file, ids, rows, damaged))],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site)},
        check=True,
        capture_output=True,
        text=True,
    )
    package = site / "jax_dynemb_torch"
    assert done.stdout.splitlines() == [
        str(package / "__init__.py"),
        str(package / "_integrity/__init__.py"),
        str(damaged),
    ]
    np.testing.assert_array_equal(
        np.load(rows), np.stack([table()[key] for key in KEYS.tolist()])
    )
