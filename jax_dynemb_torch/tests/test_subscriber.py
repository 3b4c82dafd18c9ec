# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A publication of another program: whole segments in order, or a snapshot."""

import json
import shutil
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from jax_dynemb_torch import DamagedFileError, Socket, Subscriber
from jax_dynemb_torch._integrity import (
    TABLES,
    Listener,
    delta_path,
    part_fields,
    read_delta_header,
    read_part,
    read_table_header,
    segment_path,
    snapshot_path,
)
from known import DIM, KEYS, NEW, UNCHECKED, known_rows, look_up, table

IDS = np.concatenate([KEYS, NEW, [-1]])


def write_json(path, fields):
    (path / "publication.json").write_text(json.dumps(fields))
    return read_part(path)


def snapshot(folder, number, step=0):
    """The table "items", as the begin of a history."""
    path = snapshot_path(folder, number)
    (path / TABLES).mkdir(parents=True)
    for name in ("items.safetensors", "items.manifest.json"):
        source = UNCHECKED / "float32" / name
        if source.exists():
            shutil.copy(source, path / TABLES)
    link = read_table_header(path / TABLES / "items.safetensors").link
    said = {"items": {"rows": len(KEYS)}}
    return write_json(path, part_fields(number, "", step, 1.0, said, {"items": link}))


def segment(folder, before, rows, removed=(), dense=None):
    """What follows a part."""
    path = segment_path(folder, before.number + 1)
    path.mkdir()
    keys = sorted(rows)
    tensors = {
        "keys": torch.tensor(keys, dtype=torch.int64),
        "rows": torch.tensor(np.array([rows[k] for k in keys]).reshape(-1, DIM)),
        "removed": torch.tensor(sorted(removed), dtype=torch.int64),
    }
    fields = {"format_version": 1, "kind": "delta", "table": "items"}
    file = delta_path(path, "items")
    save_file(tensors, file, {"jax_dynemb": json.dumps(fields)})
    if dense is not None:
        save_file({"w": dense}, path / "dense.safetensors", {"jax_dynemb": "{}"})
    links = {"items": read_delta_header(file).link}
    step = before.step + 1
    return write_json(
        path, part_fields(before.number + 1, before.token, step, 2.0, {}, links)
    )


def looked_up(served):
    return served({"items": torch.tensor(IDS)})["items"].numpy()


def test_segments_are_applied_in_order(tmp_path, device):
    part, rows = snapshot(tmp_path, 1), table()
    served = Subscriber(
        tmp_path, device=device, interval=0, features={"items": ["items"]}
    )
    for step in range(1, 6):
        changed = {int(k): np.full(DIM, step, np.float32) for k in [*KEYS[:3], NEW[0]]}
        removed = [int(KEYS[10 + step])]
        part = segment(tmp_path, part, changed, removed, torch.full((2,), float(step)))
        rows = {k: v for k, v in rows.items() if k not in removed} | changed
        assert served.update() == 1
        version = served.version()
        assert (version.number, version.step, version.time) == (step + 1, step, 2.0)
        assert version.dense["w"].tolist() == [step, step] and version.age() > 1e9
        found = version.collection({"items": torch.tensor(IDS, device=device)})["items"]
        np.testing.assert_array_equal(found.cpu(), look_up(rows, IDS))
    assert served.stats()["segments"] == 5 and served.stats()["snapshots"] == 1


def test_an_older_version_stays_as_it_was(tmp_path):
    part = snapshot(tmp_path, 1)
    served = Subscriber(tmp_path, interval=0, features={"items": ["items"]})
    held = served.version()
    segment(tmp_path, part, {int(KEYS[0]): np.ones(DIM, np.float32)})
    served.update()
    old = held.collection({"items": torch.tensor(IDS)})["items"]
    np.testing.assert_array_equal(old, look_up(table(), IDS))
    assert (looked_up(served)[0] == 1).all()


def test_a_gap_or_another_history_leads_to_a_snapshot(tmp_path):
    first = snapshot(tmp_path, 1)
    served = Subscriber(tmp_path, interval=0, features={"items": ["items"]})
    one = {int(KEYS[0]): np.ones(DIM, np.float32)}
    part = segment(tmp_path, first, one)
    served.update()
    other = snapshot(tmp_path, 7)
    segment(tmp_path, other, {int(KEYS[1]): np.ones(DIM, np.float32)})
    assert served.update() == 1 and served.version().number == 8
    rows = table() | {int(KEYS[1]): np.ones(DIM, np.float32)}
    np.testing.assert_array_equal(looked_up(served), look_up(rows, IDS))
    assert served.stats()["snapshots"] == 2
    # A segment of the number that comes next, but of another history.
    stranger = segment(tmp_path, type(part)(**{**vars(part), "number": 8}), one)
    assert stranger.number == 9
    assert served.update() == 0 and served.version().number == 8


def test_a_publication_comes_over_tcp(tmp_path):
    part = snapshot(tmp_path, 1)
    listener = Listener(tmp_path, "127.0.0.1:0")
    listener.take()
    source = Socket(f"127.0.0.1:{listener.port}")
    with Subscriber(source, interval=0, features={"items": ["items"]}) as served:
        rows = table()
        for step in range(1, 4):
            changed = {int(KEYS[step]): np.full(DIM, step, np.float32)}
            part, rows = segment(tmp_path, part, changed), rows | changed
            assert served.update() == 1 and served.version().step == step
            np.testing.assert_array_equal(looked_up(served), look_up(rows, IDS))
        listener.close()
        with pytest.raises(ConnectionError, match="is away"):
            served.update()
        np.testing.assert_array_equal(looked_up(served), look_up(rows, IDS))
    with pytest.raises(ValueError, match="1 processes publish"):
        Subscriber([tmp_path, tmp_path], interval=0)


def test_many_newer_rows_lead_to_a_newer_snapshot(tmp_path):
    part = snapshot(tmp_path, 1)
    served = Subscriber(tmp_path, interval=0, features={"items": ["items"]})
    part = segment(tmp_path, part, known_rows(KEYS[:200]))
    newer = snapshot_path(tmp_path, 2)
    shutil.copytree(snapshot_path(tmp_path, 1), newer)
    fields = part_fields(2, "", 1, 1.0, {}, {}, token=part.token)
    write_json(newer, fields)
    served.update()
    assert served.stats()["snapshots"] == 2 and served.version().number == 2
    segment(tmp_path, part, {int(KEYS[0]): np.ones(DIM, np.float32)})
    assert served.update() == 1 and (looked_up(served)[0] == 1).all()


def test_damage_is_refused_and_the_last_version_stays(tmp_path):
    part = snapshot(tmp_path, 1)
    served = Subscriber(tmp_path, interval=0, features={"items": ["items"]})
    bad = segment(tmp_path, part, {int(KEYS[0]): np.ones(DIM, np.float32)})
    file = bad.path / "publication.json"
    file.write_text(file.read_text().replace('"step": 1', '"step": 2'))
    with pytest.raises(DamagedFileError, match="do not match"):
        served.update()
    np.testing.assert_array_equal(looked_up(served), look_up(table(), IDS))
    with pytest.raises(FileNotFoundError, match="has no snapshot"):
        Subscriber(tmp_path / "none", wait=0.0)


def test_no_lookup_sees_half_of_a_segment(tmp_path):
    part = snapshot(tmp_path, 1)
    keys = [int(k) for k in KEYS]
    ids = torch.tensor(KEYS)
    with Subscriber(tmp_path, interval=0.001, features={"items": ["items"]}) as served:
        stop, torn = threading.Event(), []

        def look():
            while not stop.is_set():
                version = served.version()
                found = version.collection({"items": ids})["items"]
                wanted = version.step
                if wanted and not (found == wanted).all():
                    torn.append(version.number)

        readers = [threading.Thread(target=look) for _ in range(2)]
        for reader in readers:
            reader.start()
        for step in range(1, 30):
            hidden = tmp_path / "draft"
            hidden.mkdir(exist_ok=True)
            made = segment(
                hidden, part, {k: np.full(DIM, step, np.float32) for k in keys}
            )
            target = segment_path(tmp_path, made.number)
            made.path.rename(target)
            part = read_part(target)
        for _ in range(2000):
            served.update()
            if served.version().step == 29:
                break
        stop.set()
        for reader in readers:
            reader.join()
        assert served.version().step == 29 and not torn
