"""``sfapp top --once``: what is drawn of a job that streams, from the files it leaves."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from app.live_job import LIVE, SENTENCE, LiveJob, stand_still
from app.served import Served, served
from rich.console import Console

from sfapp.accounting import rolling_verdict
from sfapp.cli.live_client import FolderSource, RunReport
from sfapp.cli.top import frame
from sfapp.packets.newest_steps import newest_steps_path, write_newest_steps
from sfapp.service.live import live_run_snapshot
from sfapp.service.live_address import LiveState
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from sfapp.views.text import rolling_words
from tests.builders import late_in_data
from tests.commands import run_sfapp
from tests.live_rows import live_rows


def top(*arguments: str | Path, expect: int = 0) -> str:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COLUMNS", "140")
        result = run_sfapp("top", "--once", *arguments)
    assert result.returncode == expect, result.stderr
    return result.stdout if expect == 0 else result.stderr


ENVIRONMENT = {"PATH": "/usr/bin:/bin", "COLUMNS": "140", "OMP_NUM_THREADS": "1"}


def streamed(root: Path, silent: dict[int, float] | None = None, left: tuple[int, ...] = ()) -> None:
    """A job that goes on for longer than a command may take to start."""
    LiveJob(root).go(until=time.time() + 600, silent=silent, left=left)


def test_every_node_has_a_row_and_every_rank_a_tile(tmp_path: Path) -> None:
    streamed(tmp_path)
    lines = top(tmp_path).splitlines()
    assert lines[0].split() == [LIVE, "Live:", "8", "ranks", "reporting.", "step", "300"]
    assert [line.split()[:3] for line in lines[3:5]] == [["0", "node-0", "4"], ["1", "node-1", "4"]]
    grid = [line.split() for line in lines if line.startswith("node ")]
    assert grid[-2:] == [["node", "0", "0", "1", "2", "3"], ["node", "1", "4", "5", "6+", "7"]]


def test_a_folder_and_an_app_show_means_over_the_same_steps(tmp_path: Path) -> None:
    # Given minutes of a job
    LiveJob(tmp_path).go(300)
    with Store.open([tmp_path], memory=True) as store:
        # When its folder is read
        shown = FolderSource(store, tmp_path).latest(LIVE)
        # Then each rank took as long as in what an app is asked for
        twin = live_run_snapshot(Workspace(store, [tmp_path]), LIVE, LiveState(span=60)).document()
    assert shown is not None
    assert [rank.recent_ns for rank in shown.ranks] == [rank["recent_ns"] for rank in twin["ranks"]]


def test_silent_ranks_and_ranks_that_left_are_marked(tmp_path: Path) -> None:
    streamed(tmp_path, silent={5: 34.0}, left=(0,))
    shown = top(tmp_path, "--run", LIVE)
    assert " 0- 1  2  3" in shown
    assert " 4  5! 6+ 7" in shown
    assert "rank 5: no data for 34 s" in shown


def test_what_hosts_are_called_is_written_never_obeyed(tmp_path: Path) -> None:
    LiveJob(tmp_path, host="[red]\x1b[2J").go()
    assert "[red]\\x1b[2J-0" in top(tmp_path)


def test_the_rank_that_holds_the_job_stands_below_its_state_as_on_the_page(tmp_path: Path) -> None:
    streamed(tmp_path)
    found = live_rows(late_in_data(2), at_ns=time.time_ns(), run_id=LIVE, world_size=4)
    write_newest_steps(newest_steps_path(tmp_path, LIVE), found)
    report = news_of(tmp_path)
    assert report.rolling is not None
    assert report.rolling.summary == rolling_words(rolling_verdict(found)).headline
    lines = drawn(report, 140)
    assert lines[1] == report.rolling.summary
    assert lines[1].startswith("Rank 2 holds the job in data: 12.9 ms (")
    assert any(" 2*" in line for line in lines)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    """A run of 1,024 ranks on nodes with long names."""
    root = tmp_path_factory.mktemp("large")
    LiveJob(root, host="gpu-cluster-rack-07-chassis", nodes=256).go(2)
    return news_of(root)


def news_of(root: Path) -> RunReport:
    with Store.open([root], memory=True) as store:
        news = FolderSource(store, root).latest(None)
    assert news is not None
    return news


def drawn(news: RunReport, width: int) -> list[str]:
    """The lines of a terminal so wide."""
    text = io.StringIO()
    Console(file=text, width=width, legacy_windows=False).print(frame(news))
    return [line.rstrip() for line in text.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (160, "node host ranks median slowest rank step time skew behind CPU memory clock seen"),
        (120, "node host ranks median slowest rank step time skew behind CPU memory clock seen"),
        (80, "node host ranks median slowest rank step time skew behind seen"),
        (60, "node host median slowest rank skew seen"),
    ],
)
def test_a_row_is_a_line_with_what_there_is_room_for(tmp_path: Path, width: int, columns: str) -> None:
    LiveJob(tmp_path).go()
    lines = drawn(news_of(tmp_path), width)
    head = next(place for place, line in enumerate(lines) if line.startswith("node  host"))
    assert lines[head].split() == columns.split()
    for node, line in enumerate(lines[head + 1 : head + 3]):
        assert line.split()[:2] == [str(node), f"node-{node}"]
        assert "…" not in line
    assert lines[head + 3] == ""
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(("width", "tiles"), [(120, 4), (80, 4), (60, 4), (24, 2)])
def test_many_ranks_stay_in_rank_and_file(large: RunReport, width: int, tiles: int) -> None:
    lines = drawn(large, width)
    grid = [line for line in lines if re.match(r"(node \d+ +| {11,})\d+[ +!*-]?( +\d+[ +!*-]?)*$", line)]
    ranks = [[int(rank.rstrip("+!*-")) for rank in line[10:].split()] for line in grid]
    assert [rank for row in ranks for rank in row] == list(range(1024))
    assert {len(row) for row in ranks} == {tiles}
    assert max(map(len, lines)) <= width


def test_a_folder_without_a_stream_is_an_error(tmp_path: Path) -> None:
    assert f"{tmp_path} has no streaming run" in top(tmp_path, expect=2)
    LiveJob(tmp_path).go()
    assert "no run 'other' was streamed here" in top(tmp_path, "--run", "other", expect=2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_the_usual_screen(tmp_path: Path, number: signal.Signals) -> None:
    """Some of the signals come while it draws."""
    LiveJob(tmp_path).go()
    drawing = "import sfapp.cli.top as top; from sfapp.cli import main; top._FOLLOW_SECONDS = 0.0; main()"
    for seconds in (0.0, 0.01, 0.02, 0.03):
        terminal, end = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-c", drawing, "top", tmp_path],
            stdin=end,
            stdout=end,
            stderr=end,
            env=ENVIRONMENT | {"TERM": "xterm"},
        ) as process:
            os.close(end)
            shown = b""
            while b"\x1b[?1049h" not in shown:
                shown += os.read(terminal, 10_000)
            time.sleep(seconds)
            process.send_signal(number)
            with suppress(OSError):  # The end of a terminal that no process has open.
                while data := os.read(terminal, 10_000):
                    shown += data
            assert process.wait(10) == (0 if number == signal.SIGINT else -number)
        os.close(terminal)
        assert shown.rstrip().endswith(b"\x1b[?25h\x1b[?1049l"), shown[-200:]


# ---- of an app elsewhere ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An app with a token over a job that goes on."""
    root = tmp_path_factory.mktemp("top") / "packets"
    streamed(root, silent={5: 34.0})
    with served(root, "--memory", "--token", "s3cret-of-the-app", cwd=root.parent) as server:
        twin = server.url.partition("?")[0] + "live.json"
        asked = urllib.request.Request(twin, headers={"Authorization": "Bearer s3cret-of-the-app"})
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                if json.load(answer)["runs"]:
                    break
            time.sleep(0.1)
        yield server


def app(running: Served) -> str:
    """Its address without the token that it was printed with."""
    return running.url.partition("?")[0]


def test_an_app_elsewhere_shows_what_its_folder_does(running: Served) -> None:
    shown = top(app(running), "--token", "s3cret-of-the-app")
    assert shown.splitlines()[0].split()[:3] == [LIVE, "1", "of"]
    assert " 4  5! 6+ 7" in shown
    assert "rank 5: no data for" in shown
    assert top(running.url, "--run", LIVE).startswith(LIVE)  # as it was printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "requires a token: set --token or SFAPP_TOKEN"),
        (("--token", "another-secret-of-it"), "rejects this token"),
        (("--token", "s3cret-of-the-app", "--run", "other"), "no run 'other' was streamed here"),
    ],
)
def test_a_refusal_of_the_app_is_shown(running: Served, arguments: tuple[str, ...], message: str) -> None:
    assert message in top(app(running), *arguments, expect=2)


def test_a_server_that_does_not_answer_is_named() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # bound, not listened on
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
        complaint = top(address, expect=2)
        assert f"{address} does not answer" in complaint
        assert "folder" not in complaint
    assert "is no address of an app" in top("ftp://node0", expect=2)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>", "is no sfapp"),
        (b'{"version": 2, "runs": [{"run_id": "\xff"}]}', "is no sfapp"),
        (b'{"version": 2, "runs": [], "more":' + b"[" * 100_000, "is no sfapp"),
        (b'{"version": [2]}', "does not answer as sfapp does"),
        (b'{"version": 2, "runs": []}', "has no streaming run"),
        (b'{"runs": []}', "has version unknown"),
        (b'{"version": 99, "runs": []}', "has version 99"),
        (b'{"version": 1, "runs": []}', "has version 1"),  # it has other keys
        (b'{"version": 2}', "does not answer as sfapp does"),
        (b'{"version": 2, "runs": [{"run_id": "a"}], "run": 7}', "does not answer as sfapp does"),
    ],
)
def test_an_app_of_another_version_is_reported(body: bytes, message: str) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            assert message in top(f"http://127.0.0.1:{server.server_port}", expect=2)
        finally:
            server.shutdown()
            thread.join()


def test_a_job_that_stands_still_is_the_headline_and_its_rank_is_marked(tmp_path: Path) -> None:
    LiveJob(tmp_path).go()
    stand_still(tmp_path, time.time() - 184)
    lines = drawn(news_of(tmp_path), 140)
    assert lines[1] == SENTENCE
    assert any(" 3*" in line for line in lines)
