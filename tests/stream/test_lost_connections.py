"""Ranks and relays name what keeps them from connecting, and connect once it is gone."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq

from sfapp.stream import Keys, Relay, StreamOptions
from sfapp.stream.reconnection import Connection
from tests.stream.streams import LOOPBACK, aggregating, free_port, recorder, running, train, until, windows_in

KEYS, OTHERS = Keys.make(), Keys.make()

OTHER_CLIENTS = msgspec.structs.replace(KEYS, client_public=OTHERS.client_public)
"""Keys of a server that these clients know, and that admits others."""

Server = Callable[[Path, str], AbstractContextManager[object]]


@contextmanager
def web_server(_: Path, endpoint: str) -> Iterator[None]:
    """Listen there with another protocol."""

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 80\r\n\r\n" + b"x" * 80)
            connection.close()

    listener = socket.create_server(("127.0.0.1", int(endpoint.rpartition(":")[2])))
    thread = threading.Thread(target=answer)
    thread.start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def with_keys(keys: Keys | None) -> Server:
    return lambda root, endpoint: aggregating(root / "other", endpoint=endpoint, keys=keys)


WRONG_SERVERS = pytest.mark.parametrize(
    ("server", "reason"),
    [
        (with_keys(OTHERS), "other keys"),
        (with_keys(None), "other keys"),
        (with_keys(OTHER_CLIENTS), "refused"),
        (web_server, "no aggregator"),
    ],
    ids=["other keys", "no keys", "other clients", "another program"],
)


@WRONG_SERVERS
def test_a_rank_names_why_it_cannot_connect_and_connects_later(
    server: Server, reason: str, tmp_path: Path
) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with recorder(tmp_path, StreamOptions(endpoint=endpoint, keys=KEYS)) as perf:
        with server(tmp_path, endpoint):
            train(perf, 5)
            until(lambda: any(reason in failure for failure in perf.failures))
        with aggregating(tmp_path / "packets", endpoint=endpoint, keys=KEYS) as aggregator:
            until(lambda: aggregator.snapshot().messages)
            assert len(perf.failures) == 1


def test_a_rank_without_keys_names_the_variable_to_set(tmp_path: Path) -> None:
    with aggregating(tmp_path, keys=KEYS) as aggregator, recorder(tmp_path, aggregator.endpoint) as perf:
        train(perf, 5)
        until(lambda: any("SFAPP_STREAM_KEYS is not set" in failure for failure in perf.failures))


def test_an_address_where_nothing_listens_is_named_after_a_while_and_once(tmp_path: Path) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    notes: list[str] = []
    times = iter([0.0, 9.0, 11.0, 12.0])
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        connection = Connection(dealer, endpoint, None, notes.append, lambda: next(times))
        for known in (0, 1, 1):
            connection.tend()
            assert len(notes) == known
        assert "nothing has answered there for 10 s" in notes[0]
        connection.close()


@WRONG_SERVERS
def test_a_relay_names_why_it_cannot_connect_and_connects_later(
    server: Server, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with running(Relay(LOOPBACK, endpoint, KEYS)) as relay, caplog.at_level(logging.WARNING, "sfapp"):
        with server(tmp_path, endpoint):
            until(lambda: reason in caplog.text)
        with (
            aggregating(tmp_path / "packets", endpoint=endpoint, keys=KEYS) as aggregator,
            recorder(tmp_path, StreamOptions(endpoint=relay.endpoint, keys=KEYS.of_relay())) as perf,
        ):
            train(perf, 5)
            until(lambda: aggregator.snapshot().messages)


def test_a_server_of_other_keys_is_not_asked_ten_times_a_second(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(2.5)
        endpoint = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        accepted = 0
        with recorder(tmp_path, StreamOptions(endpoint=endpoint, keys=KEYS), timeout=0.5) as perf:
            train(perf, 5)
            deadline = threading.Event()
            threading.Timer(3.0, deadline.set).start()
            while not deadline.is_set():
                try:
                    listener.accept()[0].close()
                    accepted += 1
                except TimeoutError:
                    break
    assert 2 <= accepted < 10


def test_windows_that_a_relay_could_not_pass_on_are_named_with_their_folder(tmp_path: Path) -> None:
    with running(Relay(LOOPBACK, f"tcp://127.0.0.1:{free_port()}")) as between:
        perf = recorder(tmp_path, between.endpoint)
        train(perf, 25)
        perf.close()
        empty = recorder(tmp_path, between.endpoint, output=tmp_path / "empty")
        empty.close()
    assert empty.failures == ()
    left = tmp_path / "left-by-0"
    assert perf.failures == (f"stream: windows that were not acknowledged: 3; they are parts in {left}",)
    assert [len(window.step_N) for window in windows_in(left)] == [10, 10, 5]


def test_a_client_that_leaves_while_the_server_reads_nothing_does_not_end_the_server() -> None:
    """As while a disk hangs."""
    server = subprocess.run(
        [sys.executable, "-m", "tests.stream.busy_server"], capture_output=True, text=True, timeout=60
    )
    assert (server.returncode, server.stderr) == (0, "")
    assert int(server.stdout.removeprefix("read ")) > 0
