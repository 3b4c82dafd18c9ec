# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""EmbeddingBagCollection: features, their tables, and KeyedJaggedTensor-like input."""

import dataclasses

import numpy as np
import pytest
import torch

from jax_dynemb_torch import DynamicEmbeddingBag, EmbeddingBagCollection
from known import DIM, GOLDEN, UNCHECKED, look_up, mixed_ids, table, table_after_delta

FOLDER = GOLDEN / "float32"
FEATURES = ("clicked", "bought", "cities")


@dataclasses.dataclass
class Keyed:
    """What TorchRec's class shows: methods, values feature by feature."""

    names: list[str]
    ids: torch.Tensor
    sizes: torch.Tensor
    factors: torch.Tensor | None = None

    def keys(self):
        return self.names

    def values(self):
        return self.ids

    def lengths(self):
        return self.sizes

    def weights_or_none(self):
        return self.factors


@dataclasses.dataclass
class Jagged:
    """Attributes instead of methods; room behind the last bag."""

    values: torch.Tensor
    lengths: torch.Tensor
    weights: torch.Tensor | None = None


def random_keyed(bags: int, weighted: bool) -> Keyed:
    rng = np.random.default_rng(bags)
    sizes = rng.integers(0, 4, (len(FEATURES), bags))
    ids = mixed_ids(int(sizes.sum()), seed=bags)
    factors = torch.tensor(rng.normal(size=len(ids)), dtype=torch.float32)
    return Keyed(
        list(FEATURES),
        torch.tensor(ids),
        torch.tensor(sizes.ravel()),
        factors if weighted else None,
    )


def by_hand(keyed: Keyed) -> dict[str, np.ndarray]:
    """One bag at a time: "items" takes means, "cities" sums."""
    cities = {k: v for k, v in table().items() if k in CITIES}
    ids, sizes = iter(keyed.ids.tolist()), iter(keyed.sizes.tolist())
    factors = iter([1.0] * len(keyed.ids) if keyed.factors is None else keyed.factors)
    bags, result = len(keyed.sizes) // len(keyed.names), {}
    for name in keyed.names:
        rows, default = (
            (cities, 0.0) if name == "cities" else (table_after_delta(), None)
        )
        result[name] = np.zeros((bags, DIM))
        for bag in range(bags):
            each = [next(ids) for _ in range(next(sizes))]
            options = {} if default is None else {"default": default}
            for i in each:
                row = look_up(rows, np.array([i]), **options)[0]
                result[name][bag] += row * float(next(factors))
            if name != "cities":
                result[name][bag] /= max(1, sum(i != -1 for i in each))
    return result


CITIES = set(sorted(table(), key=list(table()).index)[:30])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bags", [1, 5, 40])
def test_a_keyed_jagged_tensor(device, bags, weighted):
    keyed = random_keyed(bags, weighted)
    moved = Keyed(
        keyed.names,
        keyed.ids.to(device),
        keyed.sizes.to(device),
        None if keyed.factors is None else keyed.factors.to(device),
    )
    rows = EmbeddingBagCollection(FOLDER).to(device)(moved)
    assert list(rows) == list(FEATURES)
    for name, expected in by_hand(keyed).items():
        np.testing.assert_allclose(rows[name].cpu(), expected, rtol=1e-5, atol=1e-5)


def test_a_dictionary_of_all_forms(device):
    collection = EmbeddingBagCollection(FOLDER).to(device)
    padded = torch.tensor(mixed_ids(6, 3), device=device)
    single = torch.tensor(mixed_ids(6), device=device)
    lengths = torch.tensor([2, 0, 1, 0, 3, 0], device=device)
    jagged = Jagged(torch.tensor(mixed_ids(9, seed=3), device=device), lengths)
    rows = collection({"bought": padded, "cities": single, "clicked": jagged})
    assert list(rows) == ["bought", "cities", "clicked"]
    bag = DynamicEmbeddingBag(FOLDER, "items", include_last_offset=True).to(device)
    torch.testing.assert_close(rows["bought"], bag(padded))
    offsets = torch.tensor([0, 2, 2, 3, 3, 6, 6], device=device)
    torch.testing.assert_close(rows["clicked"], bag(jagged.values, offsets))
    city = DynamicEmbeddingBag(FOLDER, "cities").to(device)
    torch.testing.assert_close(rows["cities"], city(single[:, None]))


def test_what_stands_behind_the_last_bag_counts_for_nothing(device):
    """Not an id, and not a weight, whatever it is; in one feature or beside another."""
    collection = EmbeddingBagCollection(FOLDER).to(device)
    ids = torch.tensor(mixed_ids(9, seed=3), device=device)
    jagged = Jagged(ids, torch.tensor([2, 0, 1, 0, 3, 0], device=device))
    weights = torch.rand(9, device=device)
    weights[6:] = float("nan")
    cut = Jagged(ids[:6], jagged.lengths)
    for names in (["clicked"], ["clicked", "bought"]):
        got = collection(dict.fromkeys(names, jagged), dict.fromkeys(names, weights))
        want = collection(dict.fromkeys(names, cut), dict.fromkeys(names, weights[:6]))
        for name in names:
            torch.testing.assert_close(got[name], want[name])
    bag = DynamicEmbeddingBag(FOLDER, "items", include_last_offset=True).to(device)
    offsets = torch.tensor([0, 2, 2, 3, 3, 6, 6], device=device)
    got = bag(ids, offsets, weights)
    torch.testing.assert_close(got, bag(ids[:6], offsets, weights[:6]))


def test_weights_for_some_features():
    collection = EmbeddingBagCollection(FOLDER)
    ids, weights = torch.tensor(mixed_ids(6, 3)), torch.rand(6, 3)
    rows = collection({"clicked": ids, "bought": ids}, {"bought": weights})
    bag = DynamicEmbeddingBag(FOLDER, "items")
    torch.testing.assert_close(rows["clicked"], bag(ids))
    torch.testing.assert_close(rows["bought"], bag(ids, per_sample_weights=weights))


def test_weights_inside_are_weights_given_apart():
    collection = EmbeddingBagCollection(FOLDER)
    ids, lengths = torch.tensor(mixed_ids(9, seed=3)), torch.tensor([2, 0, 1, 0, 3, 0])
    weights, bare = torch.rand(9), Jagged(ids, lengths)
    inside = Jagged(ids, lengths, weights)
    got = collection({"clicked": inside, "bought": bare})
    want = collection({"clicked": bare, "bought": bare}, {"clicked": weights})
    for name in ("clicked", "bought"):
        torch.testing.assert_close(got[name], want[name])
    with pytest.raises(ValueError, match="give them once"):
        collection({"clicked": inside}, {"clicked": weights})


def test_weights_beside_a_keyed_jagged_tensor():
    collection = EmbeddingBagCollection(FOLDER)
    keyed, bare = random_keyed(5, weighted=True), random_keyed(5, weighted=False)
    sizes = keyed.sizes.reshape(3, -1).sum(dim=1).tolist()
    apart = dict(zip(FEATURES, keyed.factors.split(sizes), strict=True))
    got, want = collection(bare, apart), collection(keyed)
    for name in FEATURES:
        torch.testing.assert_close(got[name], want[name])
    with pytest.raises(ValueError, match="give them once"):
        collection(keyed, apart)


def test_some_tables_and_other_features():
    collection = EmbeddingBagCollection(
        FOLDER, tables=["items"], features={"items": ["a", "b"]}, mode="sum"
    )
    ids = torch.tensor(mixed_ids(4, 2))
    rows = collection({"b": ids})
    bag = DynamicEmbeddingBag(FOLDER, "items", mode="sum")
    torch.testing.assert_close(rows["b"], bag(ids))
    with pytest.raises(ValueError, match=r"features .'clicked'. are in no table"):
        collection({"clicked": ids})
    with pytest.raises(ValueError, match="listed twice"):
        EmbeddingBagCollection(FOLDER, features={"items": ["x"], "cities": ["x"]})
    with pytest.raises(TypeError, match="has no 'keys'; give a dict of features"):
        collection([ids])


def test_deltas_of_all_tables(tmp_path):
    for name in ("items", "cities"):
        file = f"{name}.safetensors"
        (tmp_path / file).write_bytes((UNCHECKED / "float32" / file).read_bytes())
    collection = EmbeddingBagCollection(tmp_path)
    collection.apply_delta(UNCHECKED / "float32")
    ids = torch.tensor(mixed_ids(50))
    rows = collection({"clicked": ids, "cities": ids})
    expected = look_up(table_after_delta(), ids.numpy())
    np.testing.assert_allclose(rows["clicked"], expected, rtol=1e-6)
