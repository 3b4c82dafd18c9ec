# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""torch.export with a dynamic batch, and AOTInductor."""

import shutil

import pytest
import torch
from torch.export import Dim, export

from devices import DEVICES
from jax_dynemb_torch import DynamicEmbedding, EmbeddingBagCollection
from known import DIM, GOLDEN, mixed_ids

# torch warns about its own insides, from wherever they are called.
pytestmark = pytest.mark.filterwarnings("ignore")


class Model(torch.nn.Module):
    """Two tables with a delta, weights, rows of integers, and a dense layer."""

    def __init__(self):
        super().__init__()
        self.sparse = EmbeddingBagCollection(GOLDEN / "float32")
        self.small = DynamicEmbedding(GOLDEN / "int4")
        self.top = torch.nn.Linear(3 * DIM, 1)

    def forward(self, ids, weights):
        features = {"clicked": ids, "bought": ids, "cities": ids[:, 0]}
        rows = self.sparse(features, {"clicked": weights})
        sequence = self.small(ids).sum(dim=(1, 2))
        return self.top(torch.cat(list(rows.values()), 1))[:, 0] + sequence


def batch(size: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    ids = torch.tensor(mixed_ids(size, 4, seed=size))
    return ids.to(device), torch.rand(size, 4, generator=generator).to(device)


@pytest.fixture(scope="module", params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(scope="module")
def model(device):
    return Model().eval().to(device)


@pytest.fixture(scope="module")
def program(model, device):
    size = Dim("batch", min=1, max=1 << 20)
    with torch.no_grad():
        return export(model, batch(3, device), dynamic_shapes=({0: size}, {0: size}))


SIZES = [1, 2, 3, 500]


@pytest.mark.parametrize("size", SIZES)
@torch.no_grad()
def test_an_exported_program_takes_every_batch(model, program, device, size):
    got = program.module()(*batch(size, device))
    torch.testing.assert_close(got, model(*batch(size, device)))


@torch.no_grad()
def test_an_exported_program_is_saved_with_its_tables(model, program, device, tmp_path):
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    torch.testing.assert_close(loaded(*batch(7, device)), model(*batch(7, device)))


@pytest.mark.aot
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs g++")
@torch.no_grad()
def test_aot_inductor(model, program, device, tmp_path, monkeypatch):
    if device == "cuda" and shutil.which("nvcc") is None:
        pytest.skip("AOTInductor needs nvcc for a GPU")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    package = torch._inductor.aoti_compile_and_package(
        program, package_path=str(tmp_path / "model.pt2")
    )
    compiled = torch._inductor.aoti_load_package(package)
    for size in SIZES:
        got = compiled(*batch(size, device))
        torch.testing.assert_close(got, model(*batch(size, device)))
