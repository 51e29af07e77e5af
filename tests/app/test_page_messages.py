"""What a visitor's browser sends to the running server, and what of it reaches the log."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from nicegui import core
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from sfapp.app.page_messages import check_messages
from sfapp.cli.log_lines import MOST_MESSAGES
from sfapp.terminal import MAX_TEXT
from tests.app.recorded_job import job_window, put
from tests.app.served import Served, served
from tests.hostile_text import TERMINAL


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without a token."""
    folder = tmp_path_factory.mktemp("served")
    put(folder / "packets", job_window(0, {}))
    with served(folder / "packets", "--memory", cwd=folder) as server:
        yield server


def test_a_foreign_websocket_is_refused_by_the_running_server(server: Served) -> None:
    address = f"ws://127.0.0.1:{server.port}/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    with pytest.raises(InvalidStatus) as caught:
        connect(address, origin="http://evil.example")
    assert caught.value.response.status_code == 403
    with connect(address, origin=f"http://127.0.0.1:{server.port}") as own:
        assert own.recv(timeout=5).startswith("0{")  # engine.io's greeting


@contextmanager
def open_page(server: Served) -> Iterator[tuple[ClientConnection, str]]:
    """Open the first page; yield its websocket and its id."""
    page = httpx.get(server.url, follow_redirects=True).text
    client = re.search(r"'client_id': '([0-9a-f-]+)'", page)
    assert client is not None
    named = f"client_id={client[1]}&tab_id=tab&document_id=document"
    with open_socket(server, f"{named}&next_message_id=0&implicit_handshake=true") as own:
        own.recv(timeout=5)
        yield own, client[1]


@contextmanager
def open_socket(server: Served, query: str) -> Iterator[ClientConnection]:
    """Open a websocket and ask for a connection; the answer is not read."""
    address = f"ws://127.0.0.1:{server.port}/_nicegui_ws/socket.io/?EIO=4&transport=websocket&{query}"
    with connect(address, origin=f"http://127.0.0.1:{server.port}") as own:
        own.recv(timeout=5)
        own.send("40")
        yield own


def wait_until_read(own: ClientConnection, client: str) -> None:
    """Wait for the server's answer to a message after all others."""
    own.send("427" + json.dumps(["ack", {"client_id": client, "next_message_id": 0}]))
    while not str(own.recv(timeout=5)).startswith("437"):
        pass


@contextmanager
def log_of(server: Served) -> Iterator[list[str]]:
    """Collect the lines that a running server writes within the block."""
    read_log(server)
    lines: list[str] = []
    yield lines
    lines += read_log(server)


def read_log(server: Served) -> list[str]:
    """Return what it has written since the last call, once it has answered a message after all others."""
    with open_page(server) as (own, client):
        wait_until_read(own, client)
    assert server.process.stderr is not None
    log = server.process.stderr.fileno()
    os.set_blocking(log, False)
    with suppress(BlockingIOError):
        return os.read(log, 1 << 20).decode().splitlines()
    return []


def report(server: Served, reports: Sequence[dict[str, object]]) -> None:
    """Send messages for the log from a page."""
    with open_page(server) as (own, client):
        for each in reports:
            own.send("42" + json.dumps(["log", {"client_id": client, **each}]))
        wait_until_read(own, client)


def test_a_message_that_announces_attachments_is_not_kept_for_them(server: Served) -> None:
    with open_page(server) as (own, client):
        own.send('459999999999-["event",{"_placeholder":true,"num":0}]')
        wait_until_read(own, client)  # instead of taking this and all others as attachments


NOT_SENT_BY_PAGES = (
    '42["event",5]',
    '42["event",{"client_id":[]}]',
    '42["event",{"client_id":CLIENT}]',
    '42["event",{"client_id":CLIENT,"id":"x","listener_id":"y","args":[]}]',
    '42["event",{"client_id":CLIENT,"id":4,"listener_id":"y","args":[]}]',
    '42["event",{"client_id":CLIENT,"id":1,"listener_id":"y","args":[{}]}]',
    '42["event",{"client_id":CLIENT,"id":1,"listener_id":"y","args":["{"]}]',
    '42["event",{"client_id":CLIENT,"id":1,"listener_id":"y","args":["\\"\\\\ud800\\""]}]',
    '42["handshake",{}]',
    '42["handshake",{"client_id":CLIENT,"tab_id":"' + "t" * 101 + '","document_id":"d"}]',
    '42["ack",{"client_id":CLIENT,"next_message_id":"x"}]',
    '42["javascript_response",{"client_id":CLIENT,"request_id":[]}]',
    '42["unknown",{}]',
    "44",
    '44{"message":"no"}',
    '42["event",' + "[" * 100_000 + "]" * 100_000 + "]",
    "42{}",
    "42[",
    "4x",
    "4",
    "4null",
    "4{}",
    "0",
    "2",
    "9",
)


def test_a_message_that_no_page_sends_is_one_line_of_the_log(server: Served) -> None:
    with log_of(server) as lines, open_page(server) as (own, client):
        for message in NOT_SENT_BY_PAGES:
            own.send(message.replace("CLIENT", json.dumps(client)))
        wait_until_read(own, client)
    assert len(lines) == len(NOT_SENT_BY_PAGES)
    assert all("a message that no page sends was dropped" in line for line in lines)


@pytest.mark.parametrize("message", ["", "x", "b!", "²"])
def test_a_message_without_a_type_ends_its_connection_with_one_line(message: str, server: Served) -> None:
    with log_of(server) as lines, open_page(server) as (own, _):
        own.send(message)
        list(own)  # until the server closes it, without an error
    assert len(lines) == 1
    assert "a message that no page sends was dropped" in lines[0]


OF_A_PAGE = "&client_id=CLIENT&tab_id=t&document_id=d"


@pytest.mark.parametrize(
    "handshake",
    [
        "",
        "&client_id=CLIENT",
        f"{OF_A_PAGE}&next_message_id=x",
        f"&client_id=CLIENT&tab_id={'t' * 101}&document_id=d&next_message_id=0",
        f"&client_id=CLIENT&tab_id=t&document_id={'d' * 101}&next_message_id=0",
        f"{OF_A_PAGE}&next_message_id=1e5",
        f"{OF_A_PAGE}&next_message_id=x&next_message_id=0",
        f"{OF_A_PAGE}&next_message_id=x&implicit_handshake=false",
    ],
)
def test_a_handshake_that_no_page_sends_is_refused(handshake: str, server: Served) -> None:
    with log_of(server) as lines, open_page(server) as (_, client):
        query = "implicit_handshake=true" + handshake.replace("CLIENT", client)
        with open_socket(server, query) as other:
            assert str(other.recv(5)).startswith("44")
    assert len(lines) == 1
    assert "a message that no page sends was dropped" in lines[0]


def test_what_socket_io_itself_logs_is_written_as_all_else() -> None:
    check_messages()
    for logger in (core.sio.logger, core.sio.eio.logger):
        assert not logger.handlers
        assert logger.propagate


def test_a_form_that_no_page_sends_is_refused_in_words(server: Served) -> None:
    with log_of(server) as lines:
        page = httpx.get(server.url + "incidents", follow_redirects=True).text
        chooser = re.search(r"/_nicegui/client/[0-9a-f-]+/upload/[0-9]+", page)
        assert chooser is not None
        # When it sends a text in the place of a file, a damaged form, and a file that breaks off
        address = server.url.rstrip("/") + chooser[0]
        text = httpx.post(address, files={"file": (None, "no file")})
        damaged = httpx.post(address, content=b"--", headers={"Content-Type": "multipart/form-data"})
        with socket.create_connection(("127.0.0.1", server.port)) as leaving:
            head = f"POST {chooser[0]} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n"
            body = "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
            leaving.sendall((head + body).encode())
            time.sleep(0.2)
        httpx.get(server.url + "healthz")
    # Then each is refused, and nothing of them is in the log
    assert (text.status_code, damaged.status_code) == (400, 400)
    assert text.json()["detail"] == "a part of the form is not a file"
    assert lines == []


def test_a_file_that_the_disk_does_not_take_is_refused_in_one_line(recorded: Path, tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"
    command = (sys.executable, "-c", f"{limit}; from sfapp.cli import main; main()", "serve", "--no-browser")
    with served(recorded, "--memory", cwd=tmp_path, command=command) as server:
        page = httpx.get(server.url + "incidents", follow_redirects=True).text
        chooser = re.search(r"/_nicegui/client/[0-9a-f-]+/upload/[0-9]+", page)
        assert chooser is not None
        answer = httpx.post(server.url.rstrip("/") + chooser[0], files={"file": ("a.json", b" " * (2 << 20))})
        _, written = server.stop()
    assert (answer.status_code, answer.reason_phrase) == (507, "Insufficient Storage")
    assert len(written.splitlines()) == 1
    assert "a file that a page sent could not be kept: OSError: [Errno 27] File too large" in written


def test_what_a_visitor_has_logged_does_not_steer_the_server_s_terminal(server: Served) -> None:
    # When a page sends messages for the log, and one that no page sends
    texts = (f"first {TERMINAL}", "second " + "a" * 100_000)
    reports: list[dict[str, object]] = [{"level": "error", "message": text} for text in texts]
    with log_of(server) as lines:
        report(server, [*reports, {"level": TERMINAL}])
    # Then each is one line of bounded length
    assert {"first", "second"} <= {line.partition(" ")[0] for line in lines}
    assert "a message that no page sends was dropped" in lines[-1]
    assert all(line.isprintable() and len(line) <= MAX_TEXT for line in lines)


def test_a_visitor_fills_no_disk_with_messages_for_the_log(recorded: Path, tmp_path: Path) -> None:
    with served(recorded, "--memory", cwd=tmp_path) as own_server:
        report(own_server, [{"level": "error", "message": "again"}] * 2_000)
        _, written = own_server.stop()
    assert 0 < len(written.splitlines()) <= MOST_MESSAGES
