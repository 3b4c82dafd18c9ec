# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The click model of ctr/model.py in PyTorch, with tables trained in JAX. No JAX here.

    python examples/serving/torch_model.py FOLDER

FOLDER is what serve_torch.py wrote. Needs torch, safetensors and jax_dynemb_torch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from jax_dynemb_torch import EmbeddingBagCollection


class DLRM(torch.nn.Module):
    """Embeddings, their pairwise products, and a network on top.

    Args:
      tables: directory of ``jde.export.safetensors``.
      features: in the order of training.
      weights: of the dense layers, by the names that Flax gives them.
    """

    def __init__(
        self, tables: Path, features: list[str], weights: dict[str, torch.Tensor]
    ):
        super().__init__()
        self.features = features
        self.embed = EmbeddingBagCollection(tables)
        for name in ("bottom", "hidden", "top"):
            if f"{name}.kernel" not in weights:
                continue  # a log without plain numbers has no bottom layer
            kernel = weights[f"{name}.kernel"]  # [in, out]; torch keeps [out, in]
            layer = torch.nn.Linear(*kernel.shape)
            layer.load_state_dict({"weight": kernel.T, "bias": weights[f"{name}.bias"]})
            setattr(self, name, layer)

    def forward(
        self, dense: torch.Tensor, ids: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """Returns one logit a row, float32[batch]."""
        rows = self.embed(ids)
        vectors = [rows[name] for name in self.features]
        if dense.shape[1]:
            vectors.append(torch.relu(self.bottom(dense)))
        x = torch.stack(vectors, dim=1)
        left, right = torch.triu_indices(x.shape[1], x.shape[1], 1)
        products = (x @ x.mT)[:, left, right]
        inputs = torch.cat([x.flatten(1), products], dim=1)
        return self.top(torch.relu(self.hidden(inputs)))[:, 0]


@torch.inference_mode()
def main(folder: Path) -> float:
    """Loads the model and returns how far its logits are from those of JAX, at most."""
    features = json.loads((folder / "features.json").read_text())
    dense = load_file(folder / "dense.safetensors")
    model = DLRM(folder / "tables", features, dense).eval()
    check = load_file(folder / "check.safetensors")
    ids = {name: check[f"ids.{name}"] for name in features}
    logits = model(check["dense"], ids)
    return (logits - check["logits"]).abs().max().item()


if __name__ == "__main__":
    difference = main(Path(sys.argv[1]))
    print(f"largest difference of a logit between JAX and PyTorch: {difference:.2e}")
    sys.exit(difference > 1e-5)
