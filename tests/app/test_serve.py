"""Starting and stopping ``sfapp serve``: real processes, real signals, real sockets."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from nicegui import core
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from sfapp.app.page_messages import check_messages
from sfapp.app.server import ServeOptions, serve
from sfapp.cli.log_lines import MOST_MESSAGES
from sfapp.cli.serve import serve as serve_command
from sfapp.errors import ServeError
from sfapp.model.view import WindowKey
from sfapp.terminal import MAX_TEXT
from sfapp.views.address import run_page, window_page
from tests.app.recorded_job import job_window, put
from tests.app.served import PROGRAM, Served, refused, served
from tests.hostile_text import TERMINAL

RUN_IDS = ("two\nlines", "job.json", "job.csv", "~job.json", "job.json\n", "a/b", "..", "~", "über'\"\\")
"""Run ids that mean something to routes and browsers."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without a token over the runs of ``RUN_IDS``, for the tests that only send requests."""
    folder = tmp_path_factory.mktemp("served")
    for name in RUN_IDS:
        put(folder / "packets", job_window(0, {}, run_id=name))
    with served(folder / "packets", "--memory", cwd=folder) as server:
        yield server


def options(**changes: object) -> ServeOptions:
    return ServeOptions(**({"paths": (Path(__file__).parent,), "port": 0} | changes))


def refusal(**changes: object) -> str:
    with pytest.raises(ServeError) as caught:
        serve(options(**changes), announce=lambda _: None)
    return str(caught.value)


def test_a_path_that_is_not_there_is_named() -> None:
    assert refusal(paths=(Path("/no/such/folder"),)) == "no such file or folder: /no/such/folder"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_an_address_beyond_this_machine_demands_a_token(host: str) -> None:
    assert "protect it with --token-file" in refusal(host=host)


@pytest.mark.parametrize("token", ["", " ", "fifteen letters", "  fifteen letters  "])
def test_a_token_that_could_be_guessed_protects_nothing(token: str) -> None:
    assert "fewer than 16 characters" in refusal(host="0.0.0.0", token=token)


def test_a_token_that_is_no_text_is_refused() -> None:
    token = os.fsdecode(b"\xff\xfe of an environment variable")
    complaint = refusal(token=token)
    assert "no text in UTF-8" in complaint
    assert "environment" not in complaint


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("sfapp.example.org", "must be https://HOST"),
        ("ftp://sfapp.example.org", "must be https://HOST"),
        ("https://sfapp.example.org:x", "must be https://HOST"),
        ("https://[::1", "must be https://HOST"),
        ("https://me:secret@sfapp.example.org", "must be https://HOST"),
        ("https://sfapp.example.org/?a=b", "must be https://HOST"),
        ("https://sfapp.example.org/a b", "the path '/a b'"),
        ('https://sfapp.example.org/"><script>', "the path"),
        ("https://sfapp.example.org/sfapp", "protect it with --token-file"),
    ],
)
def test_a_public_address_must_be_one_and_demands_a_token(address: str, message: str) -> None:
    assert message in refusal(public_url=address)


def test_a_token_file_that_holds_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for content, message in (
        (b"", "fewer than 16"),
        (b"\xff" * 20, "cannot be read"),
        (b"x" * 100_000, "more than"),
    ):
        file.write_bytes(content)
        arguments = [str(tmp_path), "--memory", "--port", "0", "--no-browser", "--token-file", str(file)]
        result = CliRunner().invoke(serve_command, arguments)
        assert isinstance(result.exception, ServeError)
        assert message in str(result.exception)


def test_the_help_names_ways_to_hide_the_token_first() -> None:
    help_text = CliRunner().invoke(serve_command, ["--help"]).output
    assert help_text.index("--token-file") < help_text.index("SFAPP_TOKEN") < help_text.index("--token TEXT")


def test_large_headers_are_refused_by_the_running_server(server: Served) -> None:
    assert httpx.get(server.url, headers={"X": "y" * 100_000}).status_code == 431


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port}" in refusal(port=port)
        assert "--port" in refusal(port=port)


def test_an_address_of_another_machine_is_refused() -> None:
    assert "192.0.2.7" in refusal(host="192.0.2.7", token="a secret of the app", port=8642)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_is_no_failure_and_a_second_server_names_the_first(
    packets: Path, tmp_path: Path, number: int
) -> None:
    # Given a server with its store next to the packets
    with served(packets, cwd=tmp_path) as server:
        assert httpx.get(f"{server.url}healthz").json()["status"] == "ok"
        # When a second one is started on the same store, then it names the first
        if number == signal.SIGINT:
            code, complaint = refused(packets, "--port", "0", cwd=tmp_path)
            assert code == 2
            assert f"process {server.process.pid}" in complaint
            assert "--db" in complaint
        # When it receives a stop signal, then it ends cleanly and prints nothing
        assert server.stop(number) == (0, "")
    # And the store is whole and free, and nothing else was left anywhere
    assert (packets / ".sfapp" / "store.duckdb").is_file()
    assert not (packets / ".sfapp" / "store.duckdb.wal").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["packets"]


@pytest.mark.parametrize("command", [("serve", "packets"), ("demo",)])
def test_a_server_that_is_stopped_while_it_starts_leaves_no_temporary_folder(
    packets: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    # Given a server whose temporary folder exists, and that does not listen yet
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [*PROGRAM, *command, "--port", "0"],
        cwd=packets.parent,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 20
    while not list(temporary.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.001)
    # When it receives SIGTERM
    process.send_signal(signal.SIGTERM)
    # Then it ends without a word, and nothing is left
    assert process.communicate(timeout=20) == ("", "")
    assert list(temporary.iterdir()) == []


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


def log_of_visitor(recorded: Path, folder: Path, reports: Sequence[dict[str, object]]) -> list[str]:
    """Return what a server has written after a page sent it these messages for the log."""
    with served(recorded, "--memory", cwd=folder) as server:
        with open_page(server) as (own, client):
            for report in reports:
                own.send("42" + json.dumps(["log", {"client_id": client, **report}]))
            wait_until_read(own, client)
        _, written = server.stop()
    return written.splitlines()


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


def test_a_message_that_no_page_sends_is_one_line_of_the_log(recorded: Path, tmp_path: Path) -> None:
    with served(recorded, "--memory", cwd=tmp_path) as server:
        with open_page(server) as (own, client):
            for message in NOT_SENT_BY_PAGES:
                own.send(message.replace("CLIENT", json.dumps(client)))
            wait_until_read(own, client)
        _, written = server.stop()
    lines = written.splitlines()
    assert len(lines) == len(NOT_SENT_BY_PAGES)
    assert all("a message that no page sends was dropped" in line for line in lines)


@pytest.mark.parametrize("message", ["", "x", "b!", "²"])
def test_a_message_without_a_type_ends_its_connection_with_one_line(
    message: str, recorded: Path, tmp_path: Path
) -> None:
    with served(recorded, "--memory", cwd=tmp_path) as server:
        with open_page(server) as (own, _):
            own.send(message)
            list(own)  # until the server closes it, without an error
        _, written = server.stop()
    assert len(written.splitlines()) == 1
    assert "a message that no page sends was dropped" in written


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
def test_a_handshake_that_no_page_sends_is_refused(handshake: str, recorded: Path, tmp_path: Path) -> None:
    with served(recorded, "--memory", cwd=tmp_path) as server:
        with open_page(server) as (_, client):
            query = "implicit_handshake=true" + handshake.replace("CLIENT", client)
            with open_socket(server, query) as other:
                assert str(other.recv(5)).startswith("44")
        _, written = server.stop()
    assert len(written.splitlines()) == 1
    assert "a message that no page sends was dropped" in written


def test_what_socket_io_itself_logs_is_written_as_all_else() -> None:
    check_messages()
    for logger in (core.sio.logger, core.sio.eio.logger):
        assert not logger.handlers
        assert logger.propagate


def test_a_form_that_no_page_sends_is_refused_in_words(recorded: Path, tmp_path: Path) -> None:
    with served(recorded, "--memory", cwd=tmp_path) as server:
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
        _, written = server.stop()
    # Then each is refused, and nothing of them is in the log
    assert (text.status_code, damaged.status_code) == (400, 400)
    assert text.json()["detail"] == "a part of the form is not a file"
    assert written == ""


def test_what_a_visitor_has_logged_does_not_steer_the_server_s_terminal(
    recorded: Path, tmp_path: Path
) -> None:
    # When a page sends messages for the log, and one that no page sends
    texts = (f"first {TERMINAL}", "second " + "a" * 100_000)
    reports: list[dict[str, object]] = [{"level": "error", "message": text} for text in texts]
    lines = log_of_visitor(recorded, tmp_path, [*reports, {"level": TERMINAL}])
    # Then each is one line of bounded length
    assert {"first", "second"} <= {line.partition(" ")[0] for line in lines}
    assert "a message that no page sends was dropped" in lines[-1]
    assert all(line.isprintable() and len(line) <= MAX_TEXT for line in lines)


def test_a_visitor_fills_no_disk_with_messages_for_the_log(recorded: Path, tmp_path: Path) -> None:
    lines = log_of_visitor(recorded, tmp_path, [{"level": "error", "message": "again"}] * 2_000)
    assert 0 < len(lines) <= MOST_MESSAGES


def test_the_token_of_a_file_opens_the_running_server(recorded: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" s3 cret of the app \nanother line\n")
    with served(recorded, "--memory", "--token-file", file, cwd=tmp_path) as server:
        assert server.url.endswith("/?token=s3%20cret%20of%20the%20app")
        base = server.url.split("?")[0]
        with httpx.Client(follow_redirects=True) as visitor:
            assert visitor.get(base).status_code == 401
            page = visitor.get(server.url)
            assert page.status_code == 200
            assert "token" not in str(page.url)
            assert visitor.get(f"{base}index.json").status_code == 200
        reply = httpx.get(f"{base}metrics", headers={"Authorization": "Bearer s3 cret of the app"})
        assert reply.status_code == 200


def test_the_token_is_not_among_the_arguments_of_the_browser(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a browser, whose arguments all users of the machine can read
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$@" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    monkeypatch.setenv("SFAPP_TOKEN", "secret of the app")
    # When the server opens it
    with served(recorded, "--memory", cwd=tmp_path, command=(*PROGRAM, "serve")) as server:
        deadline = time.monotonic() + 20
        while not opened.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        address = opened.read_text().strip()
        # Then it is given a file that no other user can read, and that leads to the app
        assert "secret" not in address
        page = Path(address.removeprefix("file://"))
        assert page.stat().st_mode & 0o077 == page.parent.stat().st_mode & 0o077 == 0
        assert f'url={server.url}"' in page.read_text()
    assert not page.exists()


def test_every_run_has_its_pages_whatever_its_name(server: Served) -> None:
    with httpx.Client(base_url=server.url) as visitor:
        while visitor.get("/healthz").json()["store"] == "reading":
            time.sleep(0.1)
        # Each run has the page of its history and of its window, and these have their data
        for name in RUN_IDS:
            for page in (run_page(name), window_page(WindowKey(name, 0))):
                reply = visitor.get(page)
                assert reply.status_code == 200, page
                assert reply.headers["content-type"].startswith("text/html"), page
            data = visitor.get(f"{run_page(name)}.json").json()
            assert data["run"]["run_id"] == name
        # A window number that Python cannot read is a page that is missing
        assert visitor.get(f"/w/x/{'9' * 5000}").status_code == 404
        assert visitor.post("/windows.json").status_code == 405
        assert visitor.post("/windows").status_code == 405
        assert visitor.head("/windows").status_code == 200
        assert "evil" not in visitor.get("/", headers={"X-Forwarded-Prefix": "/evil"}).text
