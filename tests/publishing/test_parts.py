# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Parts that are removed, damaged or of an earlier version when a subscriber reads."""

import json
import shutil

import pytest

import jax_dynemb as jde
from jax_dynemb._src.files.integrity import (
    DENSE,
    DamagedFileError,
    channel,
    dense_path,
    part_fields,
    read_part,
    segment_path,
    snapshot_path,
)
from publishing.training import Training, same_rows, tables


def published_twice(folder):
    """A folder with a snapshot and a segment, each with dense arrays."""
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, folder) as publisher:
        run.publish(publisher)
        served = jde.serving.Subscriber(folder, tables(), interval=0)
        run.step()
        run.publish(publisher)
        publisher.flush()
    return run, served


def test_a_part_that_goes_while_it_is_read_is_no_damage(tmp_path, monkeypatch):
    _, served = published_twice(tmp_path)

    def removed(path):
        (path / "publication.json").unlink()
        try:
            return read_part(path)
        finally:
            shutil.rmtree(path)

    monkeypatch.setattr(channel, "read_part", removed)
    assert served.update() == 0 and served.version().number == 1


def test_a_part_that_goes_before_its_dense_arrays_are_read(tmp_path, monkeypatch):
    run, served = published_twice(tmp_path)
    module, away = "jax_dynemb._src.serving.subscriber", tmp_path / "removed-x"

    def removed(part):
        part.path.rename(away)
        return dense_path(part)

    monkeypatch.setattr(f"{module}.dense_path", removed)
    assert served.update() == 0 and served.version().dense["w"].tolist() == [0] * 3
    monkeypatch.undo()
    away.rename(segment_path(tmp_path, 2))
    assert served.update() == 1 and served.version().dense["w"].tolist() == [1] * 3
    same_rows(run.coll, run.state, served)


def test_dense_arrays_of_another_part_are_refused(tmp_path):
    _, served = published_twice(tmp_path)
    segment = segment_path(tmp_path, 2)
    shutil.copy(snapshot_path(tmp_path, 1) / DENSE, segment / DENSE)
    with pytest.raises(DamagedFileError, match="it is of another part"):
        served.update()
    (segment / DENSE).unlink()
    with pytest.raises(DamagedFileError, match="it is missing"):
        served.update()
    assert served.version().dense["w"].tolist() == [0] * 3


@pytest.mark.parametrize("has_dense", [True, False])
def test_parts_of_earlier_versions_do_not_name_their_dense_file(tmp_path, has_dense):
    run, served = published_twice(tmp_path)
    segment = segment_path(tmp_path, 2)
    part = read_part(segment)
    fields = part_fields(
        2, part.previous, part.step, part.time, part.tables, part.files
    )
    (segment / "publication.json").write_text(json.dumps(fields))
    if not has_dense:
        (segment / DENSE).unlink()
    assert served.update() == 1
    assert list(served.version().dense) == (["deep.0", "w"] if has_dense else [])
    same_rows(run.coll, run.state, served)


def test_old_parts_that_a_killed_publisher_left_are_removed(tmp_path):
    (tmp_path / "removed-segment-000000000001").mkdir()
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        run.publish(publisher)
    assert not list(tmp_path.glob("removed-*"))
