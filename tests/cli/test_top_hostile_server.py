"""``sfapp top`` and a server that means harm: a clear error, in bounded time and memory."""

from __future__ import annotations

import io
import itertools
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pytest
from rich.console import Console

from sfapp.cli.live_client import AppSource, RunReport
from sfapp.cli.top import frame
from sfapp.errors import RemoteError, WindowNotFoundError
from sfapp.service.app_client import MAX_BYTES
from tests.hostile_text import HOSTILE_TEXT

# Prints the peak memory of the command at its end. Not ru_maxrss, which counts what the parent had before the
# process was started.
MEASURED = """
import atexit
from pathlib import Path
from sfapp.cli import main

atexit.register(lambda: print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]))
main()
"""
COMMAND = [sys.executable, "-c", MEASURED, "top", "--once"]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
SECONDS = 1.0
TOO_MUCH = f"more than {MAX_BYTES >> 20} MiB"

Answer = Callable[[], Iterator[bytes]]
"""Yields what the server sends, until the client has enough of it."""


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """A server that sends the same bytes to every client; its address, and the requests that came."""
    requests: list[str] = []
    ended = threading.Event()

    def serve(client: socket.socket) -> None:
        with client, suppress(OSError):
            requests.append(client.recv(65_536).decode())
            for piece in answer():
                if ended.is_set():
                    return
                client.sendall(piece)

    def accept(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=[server.accept()[0]], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=[server], daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", requests
        ended.set()
        server.shutdown(socket.SHUT_RDWR)


def slowly(content: bytes) -> Iterator[bytes]:
    """Send a piece, then one byte after another without end, each before a read would time out."""
    yield content
    while True:
        time.sleep(SECONDS / 10)
        yield b" "


def endlessly(head: bytes, repeated: bytes) -> Iterator[bytes]:
    return itertools.chain([head], itertools.repeat(repeated * 1_000))


ANSWERS: dict[str, tuple[Answer, str]] = {
    "slow headers": (lambda: slowly(b"HTTP/1.1 200 OK\r\nX: "), "no complete answer within 1 s"),
    "slow body": (lambda: slowly(OK), "no complete answer within 1 s"),
    "silence": (lambda: iter(lambda: time.sleep(0.1) or b"", None), "does not answer"),
    "early hints without end": (lambda: endlessly(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "within 1 s"),
    "a body without end": (lambda: endlessly(OK, b'{"runs": '), TOO_MUCH),
    "headers without end": (lambda: endlessly(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), "does not answer"),
    "a line without end": (lambda: endlessly(b"HTTP/1.1 ", b"2"), "does not answer"),
    "no HTTP": (lambda: iter([b"SSH-2.0-OpenSSH_9.2\r\n"]), "does not answer"),
    "nothing": (lambda: iter([]), "does not answer"),
    "a chunk of any size": (
        lambda: iter([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n{"]),
        "does not answer",
    ),
    "a chunk of all that follows": (
        lambda: endlessly(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", b"x"),
        TOO_MUCH,
    ),
    "a negative length": (lambda: iter([b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{"]), "is no sfapp"),
    "an error without end": (
        lambda: endlessly(b"HTTP/1.1 500 Oh\r\n\r\n", b"x"),
        "answers 500: xxx",
    ),
    "an error of several lines": (
        lambda: iter([b"HTTP/1.1 500 Oh\r\nContent-Length: 12\r\n\r\nfirst\nsecond"]),
        "answers 500: first",
    ),
    "a status of another protocol": (lambda: iter([b"220 mail\r\n\r\n"]), "does not answer (220 mail)"),
    "an error of a wrong type": (
        lambda: iter([b'HTTP/1.1 404 No\r\nContent-Length: 14\r\n\r\n{"error": [1]}']),
        "answers 404",
    ),
    "NaN": (lambda: iter([OK, b'{"version": 2, "runs": NaN}']), "is no sfapp"),
    "infinity": (lambda: iter([OK, b'{"version": 2, "runs": [{"run_id": 1e999}]}']), "as sfapp does"),
    "a lone surrogate": (
        lambda: iter([OK, rb'{"version": 2, "runs": [{"run_id": "\ud800"}]}']),
        "is no sfapp",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_no_answer_takes_long(name: str) -> None:
    answer, message = ANSWERS[name]
    seconds = 60.0 if message == TOO_MUCH else SECONDS
    with serving(answer) as (address, _), pytest.raises((RemoteError, WindowNotFoundError)) as refused:
        AppSource(address, None, answer_seconds=seconds).latest(None)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_token_goes_to_no_other_server() -> None:
    with serving(lambda: iter([OK])) as (other, asked):
        moved = f"HTTP/1.1 302 Found\r\nLocation: {other}/live.json\r\nContent-Length: 0\r\n\r\n".encode()
        with serving(lambda: iter([moved])) as (address, requests):
            with pytest.raises(RemoteError, match="answers 302"):
                AppSource(address, "secret-of-this-app", answer_seconds=SECONDS).latest(None)
            assert "secret-of-this-app" in requests[0]
        assert asked == []


@pytest.mark.parametrize("address", ["http://[", "http://node:99999999", "http://", "http://node:port"])
def test_no_address_is_a_traceback(address: str) -> None:
    with pytest.raises(RemoteError, match="is no address of an app"):
        AppSource(address, None)


@pytest.mark.parametrize(
    "address",
    [
        "ftp://user:hidden-word@node",
        "http://user:hidden-word@node:99999999/?token=hidden-word",
        f"http://node:port/{'a' * 50_000}?token=hidden-word",
    ],
)
def test_what_is_no_address_is_named_in_short_and_without_secrets(address: str) -> None:
    with pytest.raises(RemoteError, match="is no address of an app") as refused:
        AppSource(address, None)
    assert "hidden-word" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("token", ["hidden-word\nX: y", "hidden-word\0", "hidden-word\N{EURO SIGN}"])
def test_a_token_that_no_header_can_hold_is_not_shown(token: str) -> None:
    with pytest.raises(RemoteError, match="SFAPP_TOKEN") as refused:
        AppSource("http://127.0.0.1:9", token).latest(None)
    assert "hidden-word" not in str(refused.value)


# ---- what is drawn ------------------------------------------------------------------------------


def report(**changed: Any) -> bytes:
    """A list of runs and a run in one, hostile wherever it has text."""
    content = {
        "version": 2,
        "runs": [{"run_id": HOSTILE_TEXT}],
        "run": HOSTILE_TEXT,
        "state": HOSTILE_TEXT,
        "summary": HOSTILE_TEXT,
        "silent": [HOSTILE_TEXT],
        "ranks": [{"rank": 0, "node_rank": 0, "has_left": False, "no_data_for_s": 1, "recent_ns": 1e300}],
        "nodes": [{"hostname": HOSTILE_TEXT, "node": -(10**300), "median": HOSTILE_TEXT}],
        "newest_step": 10**300,
        "newest_window": {
            "summary": HOSTILE_TEXT,
            "aim_rank": 10**300,
            "severity": -1,
            "needs_attention": True,
        },
        "rolling": {"kind": HOSTILE_TEXT, "summary": HOSTILE_TEXT, "detail": [HOSTILE_TEXT]},
    }
    return json.dumps(content | changed).encode()


def top(body: bytes) -> tuple[int, str, int]:
    """Exit code, everything printed and peak memory in MiB of the command against this answer."""
    with serving(lambda: iter([OK, body])) as (address, _):
        ended = subprocess.run(
            [*COMMAND, address],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"COLUMNS": "140"},
            check=False,
        )
    printed, _, peak = ended.stdout.decode().rstrip("\n").rpartition("\n")
    return ended.returncode, printed, int(peak) >> 10


def test_no_text_of_a_server_steers_the_terminal() -> None:
    code, printed, _ = top(report())
    assert code == 0, printed
    assert "\\x1b[2J" in printed
    assert [line for line in printed.split("\n") if not line.isprintable()] == []


@pytest.mark.parametrize(
    "changed",
    [
        {"ranks": [{"rank": 10**300, "node_rank": 0, "has_left": False, "no_data_for_s": 1, "recent_ns": 1}]},
        {"nodes": [{"hostname": [[[]]]}]},
        {"silent": [None]},
        {"newest_step": "1"},
        {"rolling": {"kind": "a", "summary": "b", "detail": "c"}},
    ],
)
def test_wrong_types_are_named(changed: dict[str, Any]) -> None:
    with (
        serving(lambda: iter([OK, report(**changed)])) as (address, _),
        pytest.raises(RemoteError, match="does not answer as sfapp does"),
    ):
        AppSource(address, None).latest(None)


def filled(place: bytes, repeated: bytes) -> bytes:
    """A report of the largest size that is read, with one value repeated in a list."""
    head, tail = report().split(place)
    return head + place + repeated * ((MAX_BYTES - len(head) - len(tail) - 100) // len(repeated)) + tail


@pytest.mark.parametrize(
    ("place", "repeated"),
    [
        (b'"nodes": [', b"{},"),
        (b'"silent": [', b'"a",'),
        (b'"version": 2, ', b'"more": [[],[],[],[],[],[],[]],'),
    ],
)
def test_a_small_answer_takes_no_large_memory(place: bytes, repeated: bytes) -> None:
    code, printed, mebibytes = top(filled(place, repeated))
    assert code in (0, 2)
    assert "Traceback" not in printed
    assert mebibytes < 1_024


def test_sentences_on_silent_ranks_are_shown_in_short() -> None:
    code, printed, _ = top(report(silent=["a" * 3_000] * 4_000))
    assert code == 0
    assert "… and 3,968 more" in printed
    assert len(printed) < 50_000


def ranks(node: Callable[[int], int]) -> list[dict[str, Any]]:
    """The largest number of ranks that is read."""
    state = {"has_left": False, "no_data_for_s": 1, "recent_ns": 1}
    return [{"rank": rank, "node_rank": node(rank), **state} for rank in range(1 << 17)]


@pytest.mark.parametrize(
    "changed",
    [
        {"nodes": [{"hostname": "a" * 9_000, "median": "b" * 9_000, "behind": "c" * 9_000}] * 256},
        {"ranks": ranks(lambda rank: rank)},
        {
            "ranks": ranks(lambda rank: 0),
            "rolling": {"kind": "a", "summary": "b", "detail": [], "finding": {"ranks": [-1] * 100_000}},
        },
    ],
    ids=["long cells", "many nodes", "many named ranks"],
)
def test_a_large_answer_is_drawn_within_seconds(changed: dict[str, Any]) -> None:
    shown = msgspec.json.decode(report(**changed), type=RunReport)
    console = Console(file=io.StringIO(), width=140)
    began = time.process_time()
    console.print(frame(shown))
    assert time.process_time() - began < 8.0


def test_an_app_that_does_not_know_the_run_after_a_restart_is_asked_again() -> None:
    gone = b'HTTP/1.1 404 No\r\nContent-Length: 21\r\n\r\n{"error": "not here"}'
    answers = itertools.chain([[OK, report()]] * 2, [[gone]], itertools.repeat([OK, report()]))
    with serving(lambda: iter(next(answers))) as (address, requests):
        command = subprocess.Popen(
            [sys.executable, "-c", MEASURED, "top", address], stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 30
            while len(requests) < 5 and command.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            assert len(requests) >= 5
        finally:
            command.kill()
            command.wait()


def test_a_run_that_a_proxy_would_read_as_another_is_named_so_that_it_is_not() -> None:
    with serving(lambda: iter([OK])) as (address, requests):
        source = AppSource(address, None)
        with pytest.raises(RemoteError):
            source.latest("team//job")
        with pytest.raises(RemoteError):
            source.stacks("team//job", all_threads=False)
    assert [request.split(".json")[0] for request in requests] == [
        "GET /live/~team~1~1job",
        "GET /stacks/~team~1~1job",
    ]
