"""``sfapp watch``: messages about the problems of a folder or an app, each once, also after a restart."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import uvicorn
from fastapi import FastAPI, Response

from sfapp.alerts import delivery
from sfapp.alerts.alert_state import AlertState
from sfapp.alerts.delivery import AlertOptions, TargetQueue, notify_until
from sfapp.alerts.sources import AppProblems, FolderProblems
from sfapp.alerts.targets import SECRET_VARIABLE, target_of
from sfapp.app import api
from sfapp.errors import AlertError, RemoteError
from sfapp.service.problems import listed
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.alerts.test_changes import problem
from tests.alerts.webhook_server import WebhookServer, webhook_server
from tests.app.live_job import LiveJob, stand_still
from tests.app.recorded_job import put, recent_window
from tests.builders import CALLBACKS, MS
from tests.cli.test_top_hostile_server import OK, serving
from tests.commands import Finished, run_sfapp, stopped_while_reading

SECRET = "a secret of sixteen characters"
SLOW = {(CALLBACKS, 3): 60 * MS}
LATE = "Rank 3 (node-0) is late in callbacks, every step"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebhookServer]:
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    monkeypatch.setattr(delivery, "RETRY_SECONDS", 0.0)
    with webhook_server() as server:
        yield server


def watch_once(where: object, server: WebhookServer, *options: object) -> Finished:
    return run_sfapp("watch", where, "--once", "--notify", f"webhook+{server.address}", *options)


def changes(server: WebhookServer) -> list[tuple[str, str]]:
    """Return the changes of all messages since the last call."""
    return [change for message in server.take() for change in message.changes]


def test_each_change_is_sent_once_also_after_a_restart(tmp_path: Path, server: WebhookServer) -> None:
    root = tmp_path / "packets"
    for number in range(3):
        put(root, recent_window(number, {} if number < 2 else SLOW))
    # When a rank is late, then a message reports it, and after a restart there is none
    assert watch_once(root, server, "--link-base", "https://sfapp.example.org").returncode == 0
    (message,) = server.take()
    assert message.changes == [("began", LATE)]
    assert message.content["changes"][0]["link"].startswith("https://sfapp.example.org/problems/")
    assert watch_once(root, server).stdout == ""
    # When it has ended at a time at which nothing is sent, then the message follows
    put(root, recent_window(3, {}))
    always = ("--quiet-hours", "00:00-12:00", "--quiet-hours", "12:00-00:00")
    assert watch_once(root, server, *always).returncode == 0
    assert changes(server) == []
    assert watch_once(root, server).returncode == 0
    assert changes(server) == [("ended", LATE)]
    # When a streamed job stands still, then a message reports it, once its receiver answers
    LiveJob(root).go()
    stand_still(root, time.time() - 184)
    server.statuses = [500]
    failed = watch_once(root, server)
    assert (failed.returncode, "answers 500" in failed.stdout) == (1, True)
    server.take()
    server.statuses = [204]
    assert watch_once(root, server).returncode == 0
    ((kind, title), *more) = changes(server)
    assert (kind, "holds the job" in title or "stands still" in title, more) == ("began", True, [])


def test_a_folder_that_is_followed_and_a_state_that_is_in_use(tmp_path: Path, server: WebhookServer) -> None:
    root, stop, lines = tmp_path / "packets", threading.Event(), []
    put(root, recent_window(0, {}))
    put(root, recent_window(1, {}))
    with AlertState.open(tmp_path / "state.json") as state, FolderProblems.open(root, None, True) as source:
        with (
            pytest.raises(AlertError, match="another process sends alerts"),
            AlertState.open(tmp_path / "state.json"),
        ):
            pass
        target = target_of(f"webhook+{server.address}", SECRET)
        queue = TargetQueue(target, state, AlertOptions(), stop, lines.append)
        thread = threading.Thread(target=notify_until, args=(stop, source, [queue], lines.append))
        thread.start()
        try:
            put(root, recent_window(2, SLOW))
            assert server.arrived.wait(10)
        finally:
            stop.set()
            thread.join()
    assert changes(server) == [("began", LATE)]
    assert lines == [f"sent to webhook {server.address}: began: {LATE} (job)"]


def test_what_happens_soon_after_a_message_waits_for_the_next_one(
    tmp_path: Path, server: WebhookServer
) -> None:
    # Given a target that has just received a message about one of two problems
    root, stop, now = tmp_path / "packets", threading.Event(), datetime.now(UTC)
    for number in range(3):
        put(root, recent_window(number, {} if number < 2 else SLOW))
    stand_still(root, time.time() - 184)
    with AlertState.open(tmp_path / "state.json") as state, FolderProblems.open(root, None, False) as source:
        both = source.problems()
        target = target_of(f"webhook+{server.address}", SECRET)
        queue = TargetQueue(target, state, AlertOptions(interval=3600), stop, str)
        queue.consider(both[:1], now)
        assert server.arrived.wait(10)
        # When the other one begins, then it is not sent before the interval has passed
        for _ in range(20):
            queue.consider(both, now)
            time.sleep(0.01)
        queue.close()
        assert [len(message.changes) for message in server.take()] == [1]
        # When the target does not answer, then it rests; all that it does not know is sent later
        server.statuses = [500]
        resting = TargetQueue(target, state, AlertOptions(interval=0), stop, str)
        resting.consider(both, now)
        resting.close()
        resting.consider(both, now)
        assert len(server.take()) == delivery.ATTEMPTS
        server.statuses = [204]
        later = TargetQueue(target, state, AlertOptions(interval=0), stop, str)
        later.consider(both, now)
        later.close()
    assert len(changes(server)) == 1


def test_a_state_on_a_full_disk_is_reported_once_and_written_when_there_is_room(
    tmp_path: Path, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, path, lines = tmp_path / "packets", tmp_path / "state.json", list[str]()
    for number in range(3):
        put(root, recent_window(number, {} if number < 2 else SLOW))

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    target = target_of(f"webhook+{server.address}", SECRET)
    with AlertState.open(path) as state, FolderProblems.open(root, None, False) as source:
        queue = TargetQueue(target, state, AlertOptions(interval=0), threading.Event(), lines.append)
        with monkeypatch.context() as patched:
            patched.setattr("sfapp.alerts.alert_state.write_atomic", full)
            for _ in range(3):
                queue.consider(source.problems(), datetime.now(UTC))
                until(lambda: len(lines) > 1)
        queue.consider(source.problems(), datetime.now(UTC))
        queue.close()
    assert changes(server) == [("began", LATE)]
    assert [line.partition(":")[0].partition("(")[0].strip() for line in lines] == [
        "sent to webhook http",
        "the state cannot be written",
        "the state is written again, with what webhook http",
    ]
    with AlertState.open(path) as state:
        assert state.known_by(target.text)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_unexpected_error_of_a_target_ends_no_other_message(
    tmp_path: Path, server: WebhookServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Given two targets, one of which fails unexpectedly, in its delivery and in its message
    root, stop, now, lines = tmp_path / "packets", threading.Event(), datetime.now(UTC), list[str]()
    for number in range(3):
        put(root, recent_window(number, {} if number < 2 else SLOW))

    def fail(*_: object) -> None:
        raise ZeroDivisionError("at once")

    failing = target_of("command:true", None)
    with AlertState.open(tmp_path / "state.json") as state, FolderProblems.open(root, None, False) as source:
        problems, options = source.problems(), AlertOptions(interval=0)
        broken = TargetQueue(failing, state, options, stop, lines.append)
        with monkeypatch.context() as patched:
            patched.setattr(type(failing), "send", fail)
            broken.consider(problems, now)
            broken.close()
        resting = TargetQueue(failing, state, options, stop, lines.append)
        with monkeypatch.context() as patched:
            patched.setattr(delivery, "message_of", fail)
            resting.consider(problems, now)
            resting.close()
        other = TargetQueue(target_of(f"webhook+{server.address}", SECRET), state, options, stop, str)
        other.consider(problems, now)
        other.close()
    # Then both are reported and logged, and tried again later; the other target has its message
    assert [line.partition(";")[0] for line in lines] == ["not sent: ZeroDivisionError: at once"] * 2
    assert [queue.failures for queue in (broken, resting, other)] == [1, 1, 0]
    assert sum(record.exc_info is not None for record in caplog.records) == 2
    assert changes(server) == [("began", LATE)]


@pytest.mark.parametrize(
    "changed",
    [{"stale_from": "2026-01-01T00:00:00"}, {"run_id": "x" * 1_000}, {"id": "x" * 1_000}],
    ids=["a time without a zone", "a long name of a run", "a long id"],
)
def test_an_app_with_problems_that_none_has_is_refused(changed: dict[str, str]) -> None:
    one = msgspec.to_builtins(problem().problem) | {"status": "ongoing"} | changed
    body = msgspec.json.encode({"store": "ready", "problems": [one]})
    with (
        serving(lambda: iter([OK, body])) as (address, _),
        pytest.raises(RemoteError, match="does not answer as sfapp does"),
    ):
        AppProblems(address, None, None).problems()


@contextmanager
def app_of(workspace: Workspace) -> Iterator[str]:
    """Serve the data of a workspace within the block."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        workspace.start()
        yield
        workspace.stop()

    application = FastAPI(lifespan=lifespan)
    api.build(application, workspace)
    with served(application) as address:
        yield address


@contextmanager
def served(application: FastAPI) -> Iterator[str]:
    """Serve an application; the block gets its address."""
    server = uvicorn.Server(uvicorn.Config(application, port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def test_an_app_reports_the_same_problems_as_its_folder(tmp_path: Path, server: WebhookServer) -> None:
    root = tmp_path / "packets"
    for number in range(3):
        put(root, recent_window(number, {} if number < 2 else SLOW))
    stand_still(root, time.time() - 184)
    with Store.open([root], memory=True) as store:
        workspace = Workspace(store, [root])
        with app_of(workspace) as address:
            source = AppProblems(address, None, None)
            deadline = time.monotonic() + 10
            while (found := source.problems()) is None and time.monotonic() < deadline:
                time.sleep(0.02)
            assert found is not None
            expected = listed(workspace.problems(), workspace.incident_log.state())
            assert [one.document() for one in found] == [one.document() for one in expected]
            state = ("--state", tmp_path / "state.json")
            assert watch_once(address, server, *state, "--run", "job").returncode == 0
            (message,) = server.take()
            assert message.changes == [("began", LATE)]
            assert message.content["changes"][0]["link"] == f"{address}/problems/{expected[-1].problem.id}"
        workspace.close()
    assert "does not answer" in watch_once(address, server, *state).stderr


def test_an_app_that_reports_numbers_beyond_all_steps_is_asked_again(
    tmp_path: Path, server: WebhookServer
) -> None:
    # Given a place that answers as an app, with a cost over more steps than any job has
    place, stop = FastAPI(), threading.Event()
    lines: list[str] = []
    cost = {
        "lost_ns": 1e9,
        "low_ns": 0.0,
        "high_ns": 2e9,
        "steps": 10**400,
        "steps_ns": 1e9,
        "rank_hours": 1.0,
    }
    began = {"step": 1, "low": 1, "high": 1}
    problem = {
        "id": "a",
        "run_id": "job",
        "kind": "rank",
        "stage": CALLBACKS,
        "ranks": [3],
        "hostname": None,
        "windows": [1],
        "world": 4,
        "began": began,
        "ended": None,
        "status": "ongoing",
        "cost": cost,
    }
    place.get("/healthz")(lambda: {"store": "live"})
    place.get("/problems.json")(lambda: {"problems": [problem]})

    def report(line: str) -> None:
        lines.append(line)
        stop.set()

    # When it is watched, then it is reported as a place that does not answer, and not believed
    with served(place) as address, AlertState.open(tmp_path / "state.json") as state:
        source = AppProblems(address, None, None)
        queue = TargetQueue(
            target_of(f"webhook+{server.address}", SECRET), state, AlertOptions(), stop, report
        )
        notify_until(stop, source, [queue], report)
    assert "does not answer as sfapp does" in lines[0]


def test_an_app_is_asked_again_after_a_proxy_answered_404_in_its_place(tmp_path: Path) -> None:
    place, stop = FastAPI(), threading.Event()
    statuses, lines = [404, 200, 200], list[str]()

    @place.get("/healthz")
    @place.get("/problems.json")
    def answer(response: Response) -> dict[str, object]:
        response.status_code = statuses.pop(0)
        return (
            {"error": "no such service"} if response.status_code == 404 else {"store": "live", "problems": []}
        )

    def report(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            stop.set()

    with served(place) as address:
        notify_until(stop, AppProblems(address, None, None), [], report)
    assert "answers 404: no such service; it is asked again" in lines[0]
    assert "answers again" in lines[1]


def test_a_test_message_and_targets_in_a_file(tmp_path: Path, server: WebhookServer) -> None:
    file = tmp_path / "targets"
    file.write_text(f"# the pager\nwebhook+{server.address}\n\n  command:false  \n")
    result = run_sfapp("watch", tmp_path, "--notify-file", file, "--test")
    assert (result.returncode, "not sent: command false ended with 1" in result.stdout) == (1, True)
    assert [message.content["changes"] for message in server.take()] == [[]]
    assert "name a target" in run_sfapp("watch", tmp_path).stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [("notes of mine", "no state of alerts"), ('{"version": 2, "targets": {}}', "another")],
)
def test_a_file_that_is_no_state_is_kept(
    tmp_path: Path, server: WebhookServer, content: str, message: str
) -> None:
    state = tmp_path / "state"
    state.write_text(content)
    result = watch_once(tmp_path, server, "--state", state)
    assert (result.returncode, message in result.stderr) == (2, True)
    assert state.read_text() == content


def test_stopped_while_it_reads_it_sends_nothing(tmp_path: Path, server: WebhookServer) -> None:
    """Problems of packets that were not read yet would count as removed."""
    put(tmp_path, recent_window(0, SLOW))
    with stopped_while_reading():
        result = watch_once(tmp_path, server)
        assert (result.returncode, result.stderr) == (1, "")
        assert run_sfapp("watch", tmp_path, "--notify", f"webhook+{server.address}").returncode == 0
    assert not server.take()
