# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains BERT4Rec: items of a history are hidden, and the model names them.

    python examples/torchrec_bert4rec.py

It follows TorchRec's `examples/bert4rec` (Sun et al., 2019): item vectors come from an
`EmbeddingCollection` as jagged rows, and are padded for a bidirectional transformer.
Histories here walk through the items by a fixed step, so that the truth is known.
`# JAX` marks the lines that JAX forces; layers of the transformer are Flax's own.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde
from jax_dynemb.torchrec import (
    DistributedModelParallel,
    EmbeddingCollection,
    EmbeddingConfig,
    KeyedJaggedTensor,
    with_optimizer,
)

ITEMS = 60
MASK = ITEMS + 1  # items are 1 to ITEMS, 0 is padding


class TransformerBlock(nnx.Module):
    """Attends to all positions that hold an item."""

    def __init__(self, hidden: int, attn_heads: int, dropout: float, *, rngs: nnx.Rngs):
        """Makes the layers, each behind a norm."""
        self.attention = nnx.MultiHeadAttention(
            attn_heads, hidden, decode=False, dropout_rate=dropout, rngs=rngs
        )
        self.feed_forward = nnx.Sequential(
            nnx.Linear(hidden, 4 * hidden, rngs=rngs),
            nnx.relu,
            nnx.Linear(4 * hidden, hidden, rngs=rngs),
        )
        self.input_norm = nnx.LayerNorm(hidden, rngs=rngs)
        self.output_norm = nnx.LayerNorm(hidden, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)

    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        """Returns [B, L, hidden]; ``mask`` is [B, 1, L, L]."""
        x = x + self.dropout(self.attention(self.input_norm(x), mask=mask))
        return x + self.dropout(self.feed_forward(self.output_norm(x)))


class HistoryArch(nnx.Module):
    """Looks up the items of histories and adds their positions."""

    def __init__(
        self,
        vocab_size: int,
        history_len: int,
        emb_dim: int,
        device: str | None = None,
        *,
        rngs: nnx.Rngs,  # JAX
    ):
        """Makes the collection and a vector for each position."""
        self.history_len = history_len
        draw = jax.random.normal(rngs.params(), (history_len, emb_dim))  # JAX
        self.positional = nnx.Param(draw)
        self.layernorm = nnx.LayerNorm(emb_dim, rngs=rngs)  # JAX
        item_embedding_config = EmbeddingConfig(
            name="item_embedding",
            embedding_dim=emb_dim,
            num_embeddings=vocab_size,
            feature_names=["item"],
            weight_init_max=1.0,
            weight_init_min=-1.0,
        )
        optimizer = {"*": jde.optim.adam(0.01)}  # JAX
        self.ec = EmbeddingCollection(
            tables=with_optimizer([item_embedding_config], optimizer),  # JAX
            device=device,
            rngs=rngs,  # JAX
        )

    def __call__(self, id_list_features: KeyedJaggedTensor) -> jax.Array:
        """Returns [B, history_len, emb_dim]."""
        jt_dict = self.ec(id_list_features)
        item_output = jt_dict["item"].to_padded_dense(self.history_len)
        return self.layernorm(item_output + self.positional[...])


class BERT4Rec(nnx.Module):
    """Scores all items for every position of a history."""

    def __init__(
        self,
        vocab_size: int,
        max_len: int,
        emb_dim: int,
        nhead: int,
        num_layers: int,
        dropout: float = 0.1,
        device: str | None = None,
        *,
        rngs: nnx.Rngs,  # JAX
    ):
        """Makes the layers."""
        self.max_len = max_len
        self.history = HistoryArch(vocab_size, max_len, emb_dim, device, rngs=rngs)
        self.transformer_blocks = nnx.List(
            [
                TransformerBlock(emb_dim, nhead, dropout, rngs=rngs)
                for _ in range(num_layers)
            ]
        )
        self.out = nnx.Linear(emb_dim, vocab_size, rngs=rngs)  # JAX

    def __call__(self, input: KeyedJaggedTensor) -> jax.Array:
        """Returns logits, [B, max_len, vocab_size]."""
        is_item = jnp.arange(self.max_len) < input["item"].lengths()[:, None]
        mask = nnx.make_attention_mask(jnp.ones_like(is_item), is_item)
        x = self.history(input)
        for transformer in self.transformer_blocks:
            x = transformer(x, mask)
        return self.out(x)


def histories(
    count: int, max_len: int, seed: int
) -> tuple[KeyedJaggedTensor, np.ndarray]:
    """Draws histories with hidden items, and what stands there: 0 where nothing hides.

    A history begins anywhere and goes on by a step of 1 or 2 at each turn.
    """
    draw = np.random.default_rng(seed)
    lengths = draw.integers(max_len // 2, max_len + 1, count)
    begin, step = draw.integers(0, ITEMS, (count, 1)), draw.integers(1, 3, (count, 1))
    items = (begin + step * np.arange(max_len)) % ITEMS + 1
    is_item = np.arange(max_len) < lengths[:, None]
    hidden = (draw.random((count, max_len)) < 0.2) & is_item
    shown = np.where(hidden, MASK, items)[is_item]
    kjt = KeyedJaggedTensor.from_lengths_sync(
        keys=["item"],
        values=shown,
        lengths=lengths,
        capacity=count * max_len,  # JAX
    )
    return kjt, np.where(hidden, items, 0)


def loss_fn(model: BERT4Rec, kjt: KeyedJaggedTensor, labels: jax.Array) -> jax.Array:
    """Returns the mean cross entropy of hidden items; label 0 counts for nothing."""
    losses = optax.softmax_cross_entropy_with_integer_labels(model(kjt), labels)
    return (losses * (labels > 0)).sum() / (labels > 0).sum()


@jde.nnx.jit  # JAX
def train_step(
    model: BERT4Rec,
    optimizer: jde.nnx.Optimizer,
    kjt: KeyedJaggedTensor,
    labels: np.ndarray | jax.Array,
) -> jax.Array:  # JAX
    """Trains on one batch."""
    loss, grads = jde.nnx.value_and_grad(loss_fn)(model, kjt, labels)  # JAX
    optimizer.update(model, grads)  # JAX
    return loss  # JAX


def main(steps: int = 400, max_len: int = 12) -> float:
    """Trains, and returns which share of the hidden items of new histories is named."""
    rngs = nnx.Rngs(0)  # JAX
    bert4rec = BERT4Rec(
        vocab_size=ITEMS + 2,
        max_len=max_len,
        emb_dim=32,
        nhead=2,
        num_layers=2,
        device="cuda",
        rngs=rngs,  # JAX
    )
    model = DistributedModelParallel(module=bert4rec, device="cuda")
    optimizer = jde.nnx.Optimizer(model, optax.adam(2e-3))  # JAX
    model.train()
    for step in range(steps):
        loss = train_step(model, optimizer, *histories(64, max_len, step))
        if step % 100 == 0:
            print(f"step {step}: loss {float(loss):.3f}")
    model.eval()
    kjt, labels = histories(256, max_len, seed=10**6)
    named = np.asarray(model(kjt)).argmax(-1)
    found = float((named == labels)[labels > 0].mean())
    print(f"of the hidden items of new histories, named: {found:.3f}")
    return found


if __name__ == "__main__":
    main()
