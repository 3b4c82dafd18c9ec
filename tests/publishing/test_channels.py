# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Channels over a network promise what a folder does."""

import contextlib
import json
import shutil
import socket
import struct
import threading
import time

import pytest

import jax_dynemb as jde
from jax_dynemb._src.files.integrity import newest
from publishing.training import Training, same_rows, tables


def numbers(channel):
    return [channel.numbers(kind) for kind in ("snapshot", "segment")]


def wait_for(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_each_segment_is_one_moment(channels):
    coll = tables()
    run = Training(coll)
    with channels.publisher(coll, snapshot_every=4, keep=2) as publisher:
        run.publish(publisher)
        publisher.flush()
        served, early = channels.subscriber(), channels.subscriber()
        for number in range(2, 16):
            run.step()
            run.publish(publisher)
            publisher.flush()
            assert served.update() == 1
            version = served.version()
            assert (version.step, version.number) == (run.steps, number)
            assert version.dense["w"].tolist() == [run.steps] * 3
            same_rows(coll, run.state, served)
        source = channels.reader()
        assert numbers(source) == [[9, 13], [10, 11, 12, 13, 14, 15]]
        late = channels.subscriber()
        assert early.update() >= 2  # its next segments are gone
        for each in (early, late):
            same_rows(coll, run.state, each)
            assert each.version().number == 15
        assert early.stats()["snapshots"] == 2 and late.stats()["snapshots"] == 1
        assert publisher.stats()["outages"] == publisher.stats()["skipped"] == 0
        for each in (served, early, late, source):
            each.close()


def test_a_new_process_continues_a_history(channels):
    coll = tables()
    run = Training(coll)
    served = None
    for _ in range(3):
        with channels.publisher(coll, snapshot_every=5) as publisher:
            for _ in range(3):
                run.step()
                run.publish(publisher)
                publisher.flush()
                if served is None:
                    served = channels.subscriber()
            served.update()
            same_rows(coll, run.state, served)
    assert served.version().number == 9 and served.stats()["snapshots"] == 1


def test_an_older_checkpoint_or_another_run_begins_a_history(channels, tmp_path):
    coll, saved = tables(), tmp_path / "saved"
    run = Training(coll)
    run.step()
    jde.checkpoint.save(saved, 1, {"tables": run.state}, tables=coll)
    with channels.publisher(coll) as publisher:
        for _ in range(3):
            run.publish(publisher)
            publisher.flush()
            run.step()
        served = channels.subscriber()
    tree = {"tables": coll.init(0)}
    run.state = jde.checkpoint.restore(saved, tree, tables=coll).tree["tables"]
    other = Training(coll, seed=5)
    for snapshots, each in enumerate((run, other), 2):
        with channels.publisher(coll) as publisher:
            for _ in range(2):
                each.step()
                each.publish(publisher)
                publisher.flush()
            served.update()
        assert served.stats()["snapshots"] == snapshots
        same_rows(coll, each.state, served)


def test_a_second_publisher_is_refused(channels):
    coll = tables()
    run = Training(coll)
    with channels.publisher(coll) as publisher:
        with pytest.raises(RuntimeError, match="has a publisher already"):
            channels.publisher(coll)
        run.publish(publisher)
    with channels.publisher(coll) as publisher:  # it went
        run.step()
        run.publish(publisher)


@pytest.mark.parametrize("channels", ["Redis", "Bucket"], indirect=True)
def test_a_publisher_that_lost_its_lease_writes_nothing_more(channels):
    coll = tables()
    run = Training(coll)
    first = channels.publisher(coll)
    run.publish(first)
    first.flush()
    first._channel._beat.stop()  # as of a process that is stopped for long
    with channels.publisher(coll) as second:
        run.step()
        run.publish(second)
        second.flush()
        run.step()
        run.publish(first)
        with pytest.raises(RuntimeError, match="Another publisher has taken"):
            first.flush()
        assert second._channel.numbers("segment") == [2]
        first.close()
        run.publish(second)
        second.flush()
        same_rows(coll, run.state, channels.subscriber())


def test_an_answer_that_is_lost_publishes_nothing_twice(channels, monkeypatch):
    coll = tables()
    run = Training(coll)
    with channels.publisher(coll, snapshot_every=3) as publisher:
        run.publish(publisher)
        publisher.flush()
        served = channels.subscriber()
        put, failed = publisher._channel.put, []

        def lost(part, before):
            put(part, before)
            if part.number not in failed:
                failed.append(part.number)
                raise ConnectionError("the answer is lost")

        monkeypatch.setattr(publisher._channel, "put", lost)
        for number in range(2, 9):
            run.step()
            run.publish(publisher)
            publisher.flush()
            assert served.update() == 1 and served.version().number == number
            same_rows(coll, run.state, served)
        assert failed == list(range(2, 9)) and publisher.stats()["outages"] >= 7
        assert served.stats()["snapshots"] == 1


def test_a_channel_that_is_away_is_waited_for(channels, monkeypatch):
    coll = tables()
    run = Training(coll)
    with channels.publisher(coll) as publisher:
        run.publish(publisher)
        publisher.flush()
        served = channels.subscriber(interval=0.01)
        away = threading.Event()
        away.set()
        for channel, name in (
            (publisher._channel, "put"),
            (served._channels[0], "numbers"),
        ):
            own = getattr(channel, name)

            def call(*given, own=own):
                if away.is_set():
                    raise ConnectionError("it is away")
                return own(*given)

            monkeypatch.setattr(channel, name, call)
        for _ in range(4):  # training goes on
            run.step()
            run.publish(publisher)
            time.sleep(0.02)
        assert publisher.stats()["skipped"] == 3 and publisher.stats()["outages"] > 0
        wait_for(lambda: served.stats()["outages"] > 0)
        assert served.version().number == 1
        away.clear()
        publisher.flush(run.state, run.dense, step=run.steps)
        wait_for(lambda: served.version().step == run.steps)
        same_rows(coll, run.state, served)
        assert served.stats()["snapshots"] == 1
        served.close()


@pytest.mark.parametrize("saved", [False, True])
def test_a_server_that_lost_parts_gets_a_snapshot(redis_server, saved):
    coll = tables()
    run = Training(coll)

    def channel():
        return jde.serving.Redis(redis_server.url, "p", lease=0.5)

    with jde.serving.Publisher(coll, channel()) as publisher:
        for _ in range(5):
            run.step()
            run.publish(publisher)
            publisher.flush()
            if saved and run.steps == 3:
                redis_server.save()
        served = jde.serving.Subscriber(channel(), tables(), interval=0)
        assert served.version().number == 5
        redis_server.kill()
        with pytest.raises(ConnectionError, match="is away"):
            served.update()
        run.step()
        run.publish(publisher)
        assert served.version().number == 5
        wait_for(lambda: publisher.stats()["outages"] > 0)
        redis_server.start()
        publisher.flush(run.state, run.dense, step=run.steps)
        served.update()
        assert served.stats()["snapshots"] == 2 and served.version().step == 6
        same_rows(coll, run.state, served)
        run.step()
        run.publish(publisher)
        publisher.flush()
        assert served.update() == 1
        same_rows(coll, run.state, served)


def test_patience_ends_with_an_error_and_the_next_call_tries_again(redis_server):
    coll = tables()
    run = Training(coll)
    channel = jde.serving.Redis(redis_server.url, "p")
    with jde.serving.Publisher(coll, channel, patience=0.05) as publisher:
        run.publish(publisher)
        publisher.flush()
        redis_server.save()
        redis_server.kill()
        run.step()
        run.publish(publisher)
        with pytest.raises(ConnectionError, match="is away"):
            publisher.flush()
        redis_server.start()
        publisher.flush(run.state, run.dense, step=run.steps)
        served = jde.serving.Subscriber(
            jde.serving.Redis(redis_server.url, "p"), tables(), interval=0
        )
        assert served.version().step == run.steps
        same_rows(coll, run.state, served)
    with pytest.raises(FileNotFoundError, match="has no snapshot"):
        other = jde.serving.Redis(redis_server.url, "other")
        jde.serving.Subscriber(other, tables(), wait=0.0)


def test_a_client_that_decodes_is_refused(redis_server):
    redis = pytest.importorskip("redis")
    client = redis.Redis.from_url(redis_server.url, decode_responses=True)
    with pytest.raises(ValueError, match="without decode_responses"):
        jde.serving.Redis(client, "p")


def test_a_reader_that_does_not_read_holds_up_nobody(tmp_path):
    coll = tables()
    run = Training(coll, batch=600)
    listener = jde.serving.Listener(tmp_path / "published", "127.0.0.1:0", timeout=0.5)
    with jde.serving.Publisher(coll, listener, snapshot_every=3, keep=1) as publisher:
        run.step()
        run.publish(publisher)
        address = f"127.0.0.1:{listener.port}"
        slow = jde.serving.Subscriber(jde.serving.Socket(address), tables(), interval=0)
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        stuck.connect(("127.0.0.1", listener.port))
        for _ in range(2000):  # far more than the buffers of a connection
            request = {"want": "files", "kind": "snapshot", "number": 1}
            text = json.dumps(request).encode()
            try:
                stuck.settimeout(0.2)
                stuck.sendall(struct.pack("!I", len(text)) + text)
            except OSError:
                break
        for _ in range(9):
            run.step()
            run.publish(publisher)
            publisher.flush()
        assert publisher.stats()["skipped"] == 0
        # What waits is bounded; who comes late begins from a snapshot.
        assert numbers(listener) == [[10], []]
        slow.update()
        assert slow.stats()["snapshots"] == 2 and slow.version().number == 10
        same_rows(coll, run.state, slow)
        wait_for(lambda: listener.subscribers == 1)  # the stuck one was hung up on
        stuck.close()


def test_a_listener_that_is_gone_and_back(tmp_path):
    coll, folder = tables(), tmp_path / "published"
    run = Training(coll)
    listener = jde.serving.Listener(folder, "127.0.0.1:0")
    with jde.serving.Publisher(coll, listener) as publisher:
        run.publish(publisher)
        port = listener.port
        source = jde.serving.Socket(f"127.0.0.1:{port}")
        served = jde.serving.Subscriber(source, tables(), interval=0)
    with pytest.raises(ConnectionError, match="is away"):
        served.update()
    again = jde.serving.Listener(folder, f"127.0.0.1:{port}")
    with jde.serving.Publisher(coll, again) as publisher:
        run.step()
        run.publish(publisher)
        publisher.flush()
        assert served.update() == 1
        same_rows(coll, run.state, served)
        with pytest.raises(RuntimeError, match="choose another port"):
            other = jde.serving.Listener(tmp_path / "other", f"127.0.0.1:{port}")
            jde.serving.Publisher(coll, other)
    with pytest.raises(TypeError, match="Listener"):
        jde.serving.Publisher(coll, source)


def test_strangers_do_not_end_a_listener(tmp_path):
    coll = tables()
    run = Training(coll)
    listener = jde.serving.Listener(tmp_path, "127.0.0.1:0")
    with jde.serving.Publisher(coll, listener) as publisher:
        run.publish(publisher)
        for said in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\2[]", b"\0\0\0\2{}"):
            with socket.create_connection(("127.0.0.1", listener.port), 5) as stranger:
                stranger.sendall(said)
                with contextlib.suppress(ConnectionResetError):
                    assert stranger.recv(1) == b""
        for number in (-1, 2, "x/../../1", None):
            request = {"want": "files", "kind": "segment", "number": number}
            text = json.dumps(request).encode()
            with socket.create_connection(("127.0.0.1", listener.port), 5) as stranger:
                stranger.sendall(struct.pack("!I", len(text)) + text)
                assert b"publisher" not in stranger.recv(100)
        source = jde.serving.Socket(f"127.0.0.1:{listener.port}")
        same_rows(coll, run.state, jde.serving.Subscriber(source, tables(), interval=0))


def test_a_publication_that_begins_again_is_followed(tmp_path):
    """Its numbers are lower than those that the subscriber knows."""
    coll, folder = tables(), tmp_path / "published"
    run = Training(coll)
    with jde.serving.Publisher(coll, folder) as publisher:
        for _ in range(4):
            run.step()
            run.publish(publisher)
            publisher.flush()
    served = jde.serving.Subscriber(folder, tables(), interval=0)
    assert served.update() == 0 and served.version().number == 4
    shutil.rmtree(folder)
    assert served.update() == 0
    with jde.serving.Publisher(coll, folder) as publisher:
        run.step()
        run.publish(publisher)
        assert served.update() == 0 and served.version().number == 1
        same_rows(coll, run.state, served)
        assert newest(publisher._channel)[1].number == 1


def test_what_is_no_channel_is_refused(tmp_path):
    with pytest.raises(TypeError, match="Bucket"):
        jde.serving.Publisher(tables(), "gs://bucket/published")
    with pytest.raises(TypeError, match="a folder or a channel"):
        jde.serving.Publisher(tables(), 5)
    with pytest.raises(ValueError, match="host:port"):
        jde.serving.Socket("trainer")
    with pytest.raises(ValueError, match="lease=0"):
        jde.serving.Bucket("memory://x", lease=0)
