# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's wrapper of a model and its pipeline, over a mesh and ``jde.pipeline``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import jax.numpy as jnp
from flax import nnx

from jax_dynemb._src import nnx as jde_nnx
from jax_dynemb._src.nnx.interface import TableModule
from jax_dynemb._src.pipeline import prefetch

Model = TypeVar("Model", bound=nnx.Module)


def collections_of(model: nnx.Module) -> dict[str, TableModule]:
    """Finds the collections in a model, by their path; a model may be one itself."""
    return {
        ".".join(map(str, path)): node
        for path, node in nnx.iter_graph(model)
        if isinstance(node, TableModule)
    }


def DistributedModelParallel(  # noqa: N802 (TorchRec's name of a class)
    module: Model,
    env: Any = None,
    device: Any = None,
    plan: Any = None,
    sharders: Any = None,
    *_: Any,
    **ignored: Any,
) -> Model:
    """Returns the model, whose collections lie on their meshes already.

    Args:
      module: a model, or a collection.
      env: ignored, as are all others but the plan.
      device: ignored.
      plan: of a planner. Its collections were made with ``mesh=mesh, plan=plan``.
      sharders: ignored.
      ignored: ignored.

    Returns:
      The same model, whose attribute ``plan`` is the plan; without one, by path of a
      collection, what ``coll.plan()`` returns for those on a mesh.

    Raises:
      ValueError: a table does not lie as the plan says.
    """
    found = collections_of(module)
    if plan is None:
        plans = {p: m.coll.plan() for p, m in found.items() if m.coll.placement}
        module.plan = nnx.static(plans)  # pyright: ignore[reportAttributeAccessIssue]
        return module
    for path, collection in found.items():
        _check_placed(path, collection, plan)
    module.plan = nnx.static(plan)  # pyright: ignore[reportAttributeAccessIssue]
    return module


def _check_placed(path: str, collection: TableModule, plan: Any) -> None:
    is_placed = collection.coll.placement is not None
    if not is_placed and len(plan.bytes_by_shard) < 2:
        return  # one device has all rows, whatever a plan calls it
    wanted = {table.table: table.sharding for table in plan.tables}
    for name, table in collection.coll.tables.items():
        here = str(getattr(table, "sharding", "")) if is_placed else "of one device"
        if wanted.get(name, here) != here:
            raise ValueError(
                f"table '{name}' is {here}, but {wanted[name]} in the plan: a "
                "collection is placed as it is made. Write mesh=mesh, plan=plan among "
                f"the arguments of {path or 'the collection'}."
            )


class TrainPipelineSparseDist:
    """Trains batch by batch: ``jde.pipeline.prefetch``, and one jitted step.

    The next batches are on the devices while a step runs. Their ids travel to the
    owners of the rows inside of the step, where XLA overlaps what it can. Of tables
    with a tier, rows of the next batch move under a step (``jde.pipeline.overlap``).

    Args:
      model: called with a batch, it returns the loss and an output, as TorchRec's does.
      optimizer: a ``jde.nnx.Optimizer`` of the model; None trains tables only.
      device: ignored.
      options: ``size`` of ``jde.pipeline.prefetch`` and ``sharding``; above a store
        ``stores`` of ``jde.nnx.prefetch_rows``. Others of TorchRec's are ignored.

    Attributes:
      prefetcher: above a store, that of ``jde.nnx.prefetch_rows``, made by the first
        ``progress``; ``jde.checkpoint.save(..., prefetcher=pipeline.prefetcher)``
        commits its rows.
    """

    prefetcher: Any = None

    def __init__(
        self,
        model: nnx.Module,
        optimizer: jde_nnx.Optimizer | None = None,
        device: Any = None,
        **options: Any,
    ):
        if optimizer is not None and not isinstance(optimizer, jde_nnx.Optimizer):
            raise TypeError(
                f"TrainPipelineSparseDist takes jde.nnx.Optimizer(model, tx), not "
                f"{type(optimizer).__name__}: it updates parameters and rows."
            )
        self._model, self._optimizer = model, optimizer
        self._ready = {n: options[n] for n in ("size", "sharding") if n in options}
        self._stores = options.get("stores")
        self._source: Any = None
        self._batches: Iterator[Any] | None = None
        self._train = jde_nnx.jit(_train)
        self._evaluate = jde_nnx.jit(_evaluate)

    def progress(self, dataloader_iter: Iterator[Any]) -> Any:
        """Runs the step of the next batch, and returns the output of the model.

        After ``model.eval()`` nothing is trained.

        Args:
          dataloader_iter: of batches, pytrees; it runs in a thread, some ahead.

        Raises:
          StopIteration: there is no batch left.
        """
        if self._batches is None or self._source is not dataloader_iter:
            self._source = dataloader_iter
            self._batches = self._pipeline(dataloader_iter)
        batch = next(self._batches)
        modules = collections_of(self._model).values()
        if modules and all(module.deterministic for module in modules):
            return self._evaluate(self._model, batch)
        return self._train(self._model, self._optimizer, batch)

    def _pipeline(self, batches: Iterator[Any]) -> Iterator[Any]:
        if any(_has_tier(module) for module in collections_of(self._model).values()):
            pairs = jde_nnx.overlap(
                self._model, batches, stores=self._stores, **self._ready
            )
            self.prefetcher = pairs.prefetcher
            return pairs
        return prefetch(batches, **self._ready)


def _has_tier(module: TableModule) -> bool:
    tables = module.coll.tables.values()
    return any(getattr(table, "tier", None) is not None for table in tables)


def _evaluate(model: Any, batch: Any) -> Any:
    return model(batch)[1]


def _train(model: Any, optimizer: Any, batch: Any) -> Any:
    def loss_of(model: Any, batch: Any) -> Any:
        losses, output = model(batch)
        return jnp.sum(losses), output

    graded = jde_nnx.value_and_grad(loss_of, has_aux=True)
    (_, output), grads = graded(model, batch)
    if optimizer is None:
        jde_nnx.update_tables(model, grads)
    else:
        optimizer.update(model, grads)
    return output
