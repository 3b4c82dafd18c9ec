# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
# pyright: reportMissingImports=false
"""Serves predictions over HTTP while newer rows arrive.

    PYTHONPATH=examples python -m serve.server FOLDER --backend jax
    curl localhost:8000/version

FOLDER is what ``python -m serve.publish`` writes. Needs fastapi, uvicorn, and jax with
jax_dynemb or torch with jax_dynemb_torch.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, Field

from serve.answer import Answer, Backend, open_backend

Id = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]


class Batch(BaseModel):
    """Ids by feature, as many for each; -1 is padding."""

    ids: dict[str, list[Id]]


def make_app(backend: Backend) -> FastAPI:
    """Makes the application. One request is one lookup, of one moment.

    The handlers are coroutines that do not wait: a lookup is shorter than the handing
    over to a thread and back.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI):
        yield
        backend.close()

    app = FastAPI(title="jax_dynemb", lifespan=lifespan)

    @app.get("/version")
    async def version():
        answer = backend(np.full((len(backend.features), 1), -1))
        return {"step": answer.step, "age": answer.age, "features": backend.features}

    @app.post("/predict")
    async def predict(batch: Batch):
        answer = _answer(backend, _array(batch.ids, backend.features))
        return {"logits": answer.logits.tolist(), "step": answer.step}

    @app.post("/predict.bin")
    async def predict_binary(request: Request):
        answer = _answer(backend, _binary(await request.body(), backend.features))
        return _bytes(answer.logits, answer)

    @app.post("/rows.bin")
    async def rows_binary(request: Request):
        answer = _answer(backend, _binary(await request.body(), backend.features))
        return _bytes(answer.rows, answer)

    return app


def _array(ids: dict[str, list[int]], features: list[str]) -> np.ndarray:
    if ids.keys() != set(features) or len({len(each) for each in ids.values()}) != 1:
        raise HTTPException(422, f"give as many ids for each of {features}")
    return np.array([ids[name] for name in features], np.int64)


def _binary(body: bytes, features: list[str]) -> np.ndarray:
    if not body or len(body) % (8 * len(features)):
        raise HTTPException(422, f"give int64[{len(features)}, batch], little-endian")
    return np.frombuffer(body, "<i8").reshape(len(features), -1)


def _answer(backend: Backend, ids: np.ndarray) -> Answer:
    try:
        return backend(ids)
    except ValueError as error:
        raise HTTPException(422, str(error)) from None


def _bytes(array: np.ndarray, answer: Answer) -> Response:
    headers = {"x-step": str(answer.step), "x-age": f"{answer.age:.3f}"}
    data = np.ascontiguousarray(array, "<f4").tobytes()
    return Response(data, media_type="application/octet-stream", headers=headers)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--backend", default="jax", help="jax or torch")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args(arguments)
    # The thread that applies newer rows gives the interpreter back this often.
    sys.setswitchinterval(0.0005)
    app = make_app(open_backend(options.backend, options.folder))
    uvicorn.run(app, port=options.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
