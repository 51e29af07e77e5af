"""Starting and stopping ``sfapp serve``: real processes, real signals, real sockets."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from sfapp.app.server import ServeOptions, serve
from sfapp.cli.serve import serve as serve_command
from sfapp.errors import ServeError
from sfapp.model.view import WindowKey
from sfapp.views.address import run_page, window_page
from tests.app.recorded_job import job_window, put
from tests.app.served import COMMAND, PROGRAM, Served, refused, served

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


def test_a_server_may_open_as_many_connections_as_the_system_allows(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard})); {PROGRAM[-1]}"
    with served(tmp_path, cwd=tmp_path, command=(*PROGRAM[:-1], limited, *COMMAND[len(PROGRAM) :])) as server:
        assert httpx.get(f"{server.url}healthz").status_code == 200
        soft, _ = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    assert soft == min(hard, 2**18)
