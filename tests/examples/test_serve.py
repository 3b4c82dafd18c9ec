# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""examples/serve: both backends predict what NumPy does, and no answer is torn."""

import contextlib
import http.client
import importlib.util
import json
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

import jax_dynemb as jde
import serve_http
import triton_stand_in
from serve import load, publish
from serve.answer import MAX_BATCH, open_backend

pytest.importorskip("flatbuffers", reason="jax.export needs it to write bytes")

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = ROOT / "examples/serve/triton/dynemb"
IDS = 40


class Training:
    """Trains and publishes in this process, step by step."""

    def __init__(self, folder, count=False):
        self.folder, self.steps, self.rng = folder, 0, np.random.default_rng(0)
        self.coll, self.dense = publish.make_tables(IDS, count), publish.dense_layers()
        self.state, optimizer = self.coll.init(0), optax.adam(1e-2)
        self.moments, self.count = optimizer.init(self.dense), count
        publish.write_program(folder, self.coll, self.state, self.dense)
        self._step = (
            publish.counting_step(self.coll)
            if count
            else publish.training_step(self.coll, optimizer)
        )
        self.publisher = jde.serving.Publisher(self.coll, folder / "published")

    def step(self):
        drawn, labels = publish.draw(self.rng, IDS)
        if self.count:
            drawn = np.tile(np.arange(IDS), (publish.FEATURES, 1))
        columns = zip(self.coll.features, drawn, strict=True)
        ids = {name: jde.ids(column) for name, column in columns}
        self.state, self.dense, self.moments, _ = self._step(
            self.state, self.dense, self.moments, ids, labels
        )
        self.steps += 1
        self.publisher.step(self.state, self.dense, step=self.steps)

    def expected(self, ids):
        """Computes the logits in NumPy, of the rows that the training holds."""
        columns = zip(self.coll.features, ids, strict=True)
        found = self.coll.find(self.state, {n: jde.ids(x) for n, x in columns})[0]
        rows = np.stack([np.asarray(found[name]) for name in self.coll.features])
        dense = jax.tree.map(np.asarray, self.dense)
        x = np.concatenate(list(rows), axis=1)
        hidden = np.maximum(x @ dense["hidden"] + dense["bias"], 0)
        return hidden @ dense["top"]


@pytest.fixture(params=["jax", "torch"])
def framework(request, monkeypatch):
    if request.param == "torch":
        pytest.importorskip("torch")
        monkeypatch.syspath_prepend(str(ROOT / "jax_dynemb_torch/src"))
    return request.param


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    run = Training(tmp_path_factory.mktemp("served"))
    with run.publisher:
        for _ in range(3):
            run.step()
        run.publisher.flush(run.state, run.dense, step=run.steps)
        yield run


def draw_ids(batch, seed=0):
    """Draws ids that are known, unknown, and padding."""
    shape = (publish.FEATURES, batch)
    return np.random.default_rng(seed).integers(-1, IDS + 5, shape)


def reached(backend, step):
    """Waits until a backend serves a step."""
    until = time.monotonic() + 60
    while (answer := backend(draw_ids(1))).step < step:
        assert time.monotonic() < until, f"still at step {answer.step}"
        time.sleep(0.02)


@pytest.mark.slow
def test_backends_predict_what_numpy_does_and_follow(framework, training):
    backend = open_backend(framework, str(training.folder))
    with contextlib.closing(backend):
        for batch in (1, 5, 64):
            reached(backend, training.steps)
            ids = draw_ids(batch, batch)
            answer = backend(ids)
            np.testing.assert_allclose(
                answer.logits, training.expected(ids), rtol=1e-4, atol=1e-5
            )
            assert answer.rows.shape == (publish.FEATURES, batch, publish.DIM)
            before = training.steps
            training.step()
            training.publisher.flush(training.state, training.dense, step=before + 1)
        for wrong in (draw_ids(MAX_BATCH + 1), draw_ids(4)[:3], draw_ids(4)[:, :0]):
            with pytest.raises(ValueError, match="batch of 1 to 4096"):
                backend(wrong)


@contextlib.contextmanager
def serving(framework, folder):
    """Runs the HTTP server in a thread; yields its port."""
    pytest.importorskip("fastapi")
    uvicorn = pytest.importorskip("uvicorn")
    from serve.server import make_app  # noqa: PLC0415 (needs fastapi)

    port = serve_http.free_port()
    app = make_app(open_backend(framework, str(folder)))
    config = uvicorn.Config(app, port=port, log_level="warning", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < until and thread.is_alive()
            time.sleep(0.02)
        yield port
    finally:
        server.should_exit = True
        thread.join(60)


def sent(port, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        headers = {"content-type": "application/json"} if path == "/predict" else {}
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.slow
def test_json_and_binary_requests_have_one_answer(training):
    ids = draw_ids(64)
    with serving("jax", training.folder) as port:
        named = {f"f{n}": column.tolist() for n, column in enumerate(ids)}
        status, text = sent(port, "/predict", json.dumps({"ids": named}))
        assert status == 200
        _, data = sent(port, "/predict.bin", ids.tobytes())
        logits = np.frombuffer(data, np.float32)
        np.testing.assert_allclose(json.loads(text)["logits"], logits, rtol=1e-6)
        np.testing.assert_allclose(logits, training.expected(ids), rtol=1e-4, atol=1e-5)
        status, text = sent(port, "/version")
        assert json.loads(text)["step"] == training.steps
        for path, wrong, says in (
            ("/predict", json.dumps({"ids": {"f0": [1]}}), "as many ids for each"),
            ("/predict", json.dumps({"ids": named | {"f3": [1 << 63]}}), "less than"),
            ("/predict.bin", b"12345678", "int64[26, batch]"),
            ("/predict.bin", draw_ids(MAX_BATCH + 1).tobytes(), "send a larger batch"),
        ):
            status, text = sent(port, path, wrong)
            assert status == 422 and says in text.decode()


@pytest.mark.slow
def test_no_answer_is_torn_while_rows_change(framework, tmp_path):
    run, stop = Training(tmp_path, count=True), threading.Event()

    def train():
        while not stop.wait(0.02):
            run.step()

    run.step()
    trainer = threading.Thread(target=train)
    with run.publisher:
        with serving(framework, tmp_path) as port:
            trainer.start()
            options = ["--port", str(port), "--path", "rows.bin", "--check"]
            options += ["--ids", str(IDS), "--seconds", "1", "--connections", "2"]
            try:
                rounds = loads_until_rows_change(load.parse(options))
            finally:
                stop.set()
                trainer.join()
        run.publisher.flush()
    assert sum(found["requests"] for found in rounds) > 20
    for found in rounds:
        assert found["p50_ms"] <= found["p99_ms"] <= found["p99.9_ms"]


def loads_until_rows_change(options):
    """Sends for at least four seconds, and on a busy machine until rows changed."""
    rounds, changes = [], 0
    while len(rounds) < 4 or changes < 3:
        assert len(rounds) < 60, f"rows changed {changes} times in a minute"
        rounds.append(load.measure(options))
        changes += rounds[-1]["moments"] - 1
    return rounds


def test_a_torn_answer_is_noticed():
    load.check_whole(np.full(100, 7.0, np.float32), 7)
    for rows in (np.r_[np.full(99, 7.0), 8.0], np.full(100, 6.0)):
        with pytest.raises(load.Torn, match="step 7"):
            load.check_whole(rows, 7)


@pytest.fixture
def triton_model(monkeypatch):
    """Imports the repository's model.py beside a stand-in for Triton's module."""
    name = "triton_python_backend_utils"
    monkeypatch.setitem(sys.modules, name, triton_stand_in.module())
    spec = importlib.util.spec_from_file_location("model", REPOSITORY / "1/model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TritonPythonModel()


@pytest.mark.slow
def test_the_triton_repository_answers(framework, training, triton_model):
    config = triton_stand_in.parse_config((REPOSITORY / "config.pbtxt").read_text())
    assert config["name"] == REPOSITORY.name and config["backend"] == "python"
    (declared,) = config["input"]
    assert declared["dims"] == [publish.FEATURES, -1]
    config["parameters"] = {
        "folder": {"string_value": str(training.folder)},
        "framework": {"string_value": framework},
    }
    triton_model.initialize(
        {"model_config": json.dumps(config), "model_name": "dynemb"}
    )
    ids = [draw_ids(64), draw_ids(4)[:3], draw_ids(1)]
    requests = [
        triton_stand_in.InferenceRequest([triton_stand_in.Tensor("IDS", x)])
        for x in ids
    ]
    responses = triton_model.execute(requests)
    triton_model.finalize()
    assert [x.has_error() for x in responses] == [False, True, False]
    error = responses[1].error()
    assert error.code() == triton_stand_in.TritonError.INVALID_ARG
    assert "int64[26, batch]" in error.message()
    for at in (0, 2):
        found = triton_stand_in.check_response(config, responses[at])
        want = training.expected(ids[at])
        np.testing.assert_allclose(found["LOGITS"], want, rtol=1e-4, atol=1e-5)
        assert found["STEP"].tolist() == [training.steps]
