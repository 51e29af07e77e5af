"""Captures on one rank: exactly the steps asked for, within limits, training unharmed whatever happens."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import psutil
import pytest
import torch
from torch.utils.data import DataLoader

import sfapp
from sfapp.model.capture import PROFILED, CaptureLimits, CaptureRequest, CaptureState
from sfapp.packets import find_packets, read_operators, read_packet_operators, read_windows
from sfapp.packets.captures import (
    ask_for_capture,
    captures,
    captures_folder,
    new_request,
    new_stacks_request,
    read_rank,
    request_path,
    state_of,
    trace_path,
    write_next_to,
)
from sfapp.packets.paths import operators_path
from sfapp.recorder.capture.mailbox import FileCaptureMailbox
from sfapp.recorder.capture.profiler import Profiling
from tests.job_ranks import rank_of

pytestmark = pytest.mark.usefixtures("hot_path")

FORWARD, BACKWARD = "model.fwd_loss_cpu_wall", "model.backward_cpu_wall"
EAGER = CaptureLimits(cooldown_seconds=0.0)
SECONDS = 40.0


def recorder(root: Path, **options: object) -> sfapp.Recorder:
    return sfapp.Recorder(root, run_id="run", **{"window_steps": 8, "captures": EAGER, **options})


def one_step(perf: sfapp.Recorder) -> None:
    weight = torch.ones(4, 4, requires_grad=True)
    with perf.step():
        with perf.stage(FORWARD):
            loss = torch.mm(weight, weight).sum()
        with perf.stage(BACKWARD):
            loss.backward()


def ask(root: Path, **about: object) -> CaptureRequest:
    request = new_request("run", [0], **{"steps": 2, **about})
    ask_for_capture(root, request)
    return request


def train_until_over(perf: sfapp.Recorder, root: Path, request: CaptureRequest) -> CaptureState:
    deadline = time.monotonic() + SECONDS
    while not (state := state_of(root, request)).is_over or not state.ranks:
        assert time.monotonic() < deadline, state
        one_step(perf)
        time.sleep(0.01)
    return state


def capture_now(perf: sfapp.Recorder, root: Path) -> CaptureState:
    """Ask while no step goes by: a step that a busy machine has passed meanwhile is not captured."""
    one_step(perf)
    request = ask(root)
    wait_for_request(root, request)
    return train_until_over(perf, root, request)


@pytest.fixture
def armed(tmp_path: Path) -> Iterator[tuple[sfapp.Recorder, CaptureRequest]]:
    """A recorder that waits for step 6, at which a capture of 4 steps is to begin."""
    request = ask(tmp_path, steps=4, first_step=6)
    with recorder(tmp_path) as perf:
        wait_for_request(tmp_path, request)
        yield perf, request


def wait_for_request(root: Path, request: CaptureRequest) -> None:
    deadline = time.monotonic() + SECONDS
    while not state_of(root, request).ranks:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def converters() -> list[int]:
    """Processes that read traces for a recorder of this one; the suite has others, servers for instance."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "sfapp.importers.capture_converter" in child.cmdline():
                found.append(child.pid)
    return found


def test_each_window_gets_its_own_steps_and_nothing_stays_behind(
    tmp_path: Path, armed: tuple[sfapp.Recorder, CaptureRequest]
) -> None:
    perf, request = armed
    for _ in range(7):
        one_step(perf)
    loader = DataLoader(torch.arange(8), batch_size=2, num_workers=1)
    assert sum(len(batch) for batch in loader) == 8, "its worker is forked while the profiler runs"
    one_step(perf)
    perf.reconfigure(stages=[FORWARD, BACKWARD, "callbacks.cpu_wall"])
    for _ in range(4):
        one_step(perf)
    perf.close()  # waits for what is being written
    state = state_of(tmp_path, request)
    assert (state.status, state.windows, state.why) == ("done", (0, 1), "")
    for window, steps in ((0, (6, 7)), (1, (8, 9))):
        events = read_operators(operators_path(tmp_path, "run", window, 0))
        assert events.steps == steps
        of_last = {events.name(place) for place in (events.step_E == steps[-1]).nonzero()[0]}
        assert {FORWARD, BACKWARD, "aten::mm"} <= of_last
        at = events.start_ns_E.min() / 1e9
        assert abs(at - time.time()) < 2 * SECONDS, "the axis is the wall clock"
    assert sum(each.events for each in state.ranks) > 20
    assert 0 < state.ranks[0].stopped_ns < 5e9
    found = [item.window for item in read_windows([tmp_path]).windows]
    marked = [window.step_N[window.side[PROFILED].sampled_NR[:, 0]].tolist() for window in found]
    assert marked == [[6, 7], [8, 9]]
    assert not [thread for thread in threading.enumerate() if thread.name == "sfapp-captures"]
    assert converters() == []
    assert not torch.autograd.profiler._is_profiler_enabled
    assert perf.failures == ()


def test_two_captures_of_one_window_are_both_kept(tmp_path: Path) -> None:
    with recorder(tmp_path, window_steps=100_000) as perf:
        for _ in range(2):
            state = capture_now(perf, tmp_path)
            assert (state.status, state.windows) == ("done", (0,)), state
        steps = {step for each in captures(tmp_path, "run") for step in steps_of(each)}
    events = read_packet_operators(find_packets([tmp_path]))
    assert events is not None
    assert (len(steps), set(events.steps)) == (4, steps)


def steps_of(state: CaptureState) -> range:
    (answer,) = state.ranks
    assert answer.first_step is not None
    return range(answer.first_step, answer.first_step + answer.steps)


def test_a_request_that_arrives_while_the_profiler_stops_waits_for_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, late = Profiling.stop, list[CaptureRequest]()

    def slow_stop(profiling: Profiling, metadata: dict[str, object]) -> None:
        stop(profiling, metadata)
        late.append(ask(tmp_path))
        wait_for_request(tmp_path, late[0])

    monkeypatch.setattr(Profiling, "stop", slow_stop)
    with recorder(tmp_path, captures=CaptureLimits()) as perf:
        first = capture_now(perf, tmp_path)
    assert late, first
    state = state_of(tmp_path, late[0])
    assert state.status == "refused"
    assert "the previous capture ended too recently" in state.why


def test_a_capture_cut_short_by_the_jobs_end_is_kept_and_marked(
    tmp_path: Path, armed: tuple[sfapp.Recorder, CaptureRequest]
) -> None:
    perf, request = armed
    for _ in range(7):
        one_step(perf)
    perf.close()
    state = state_of(tmp_path, request)
    assert state.status == "done"
    assert state.why == "rank 0: 1 of 4 steps: the recorder was closed"
    assert read_operators(operators_path(tmp_path, "run", 0, 0)).steps == (6,)


def test_a_trace_that_cannot_be_read_is_kept_itself(
    tmp_path: Path, armed: tuple[sfapp.Recorder, CaptureRequest]
) -> None:
    perf, request = armed
    operators_path(tmp_path, "run", 0, 0).mkdir(parents=True)  # nothing can be written there
    for _ in range(10):
        one_step(perf)
    state = train_until_over(perf, tmp_path, request)
    assert state.status == "refused"
    assert "cannot be written" in state.why
    assert trace_path(tmp_path, "run", 0, 0).stat().st_size > 100


def test_closing_waits_no_longer_than_it_may_and_leaves_no_process(tmp_path: Path) -> None:
    request = ask(tmp_path, steps=2, first_step=3)
    perf = recorder(tmp_path, timeout=0.01, captures=CaptureLimits(longest_seconds=1e-6))
    wait_for_request(tmp_path, request)
    for _ in range(5):
        one_step(perf)
    begin = time.monotonic()
    perf.close()
    assert time.monotonic() - begin < 6
    assert converters() == []
    (rank_state,) = state_of(tmp_path, request).ranks
    assert rank_state.steps == 1
    assert rank_state.why.startswith("1 of 2 steps: it took longer than 1e-06 s")


def test_another_profiler_has_precedence(
    tmp_path: Path, armed: tuple[sfapp.Recorder, CaptureRequest]
) -> None:
    perf, request = armed
    with torch.profiler.profile() as theirs:
        for _ in range(8):
            one_step(perf)
    assert len(theirs.events()) > 0
    state = train_until_over(perf, tmp_path, request)
    assert (state.status, state.why) == ("refused", "rank 0: another profiler is running")


@pytest.mark.parametrize("prepared_before", [False, True])
def test_a_profiler_that_training_starts_itself_is_let_by(
    tmp_path: Path, armed: tuple[sfapp.Recorder, CaptureRequest], prepared_before: bool
) -> None:
    perf, request = armed
    theirs = torch.profiler.profile()
    if prepared_before:
        theirs.prepare_trace()
    for _ in range(6):
        one_step(perf)
    assert torch.autograd.profiler._is_profiler_enabled, "the capture's own"
    with perf.step(), perf.stage(FORWARD):
        theirs.start_trace() if prepared_before else theirs.start()
        torch.ones(3).add(1)
        theirs.stop_trace() if prepared_before else theirs.stop()
    assert any(event.name == "aten::add" for event in theirs.events())
    state = train_until_over(perf, tmp_path, request)
    assert (state.status, state.why) == ("refused", "rank 0: training started a profiler of its own")
    with torch.profiler.profile():  # torch is as it was
        one_step(perf)


@pytest.mark.parametrize(
    ("about", "status", "why"),
    [
        ({"first_step": 3}, "refused", "had already reached step"),
        ({"steps": 3}, "refused", "steps have been profiled"),
        ({"age": 1000}, "expired", "the request is too old: 100"),
    ],
)
def test_what_may_not_be_captured_is_refused_with_the_reason(
    tmp_path: Path, about: dict[str, int], status: str, why: str
) -> None:
    with recorder(tmp_path, captures=CaptureLimits(cooldown_seconds=0, total_steps=2)) as perf:
        for _ in range(5):
            one_step(perf)
        asked = {"steps": 2, "age": 0, **about}
        at = datetime.now(UTC) - timedelta(seconds=asked.pop("age"))
        request = replace(new_request("run", [0], **asked), asked_at=at)
        ask_for_capture(tmp_path, request)
        state = train_until_over(perf, tmp_path, request)
    assert (state.status, why in state.why) == (status, True), state


def test_a_capture_without_a_folder_for_temporary_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorder(tmp_path) as perf:
        one_step(perf)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "removed"))
        state = train_until_over(perf, tmp_path, ask(tmp_path))
    assert state.status == "refused"
    assert "there is no folder for temporary files" in state.why
    assert perf.failures == ()


def test_a_request_for_stacks_that_is_late_by_the_clock_of_the_rank_is_refused_with_its_age(
    tmp_path: Path,
) -> None:
    request = new_stacks_request("run", [0])
    request = replace(request, asked_at=request.asked_at - timedelta(seconds=3600))
    write_next_to(request_path(tmp_path, "run", request.id), msgspec.json.encode(request))
    with recorder(tmp_path):
        deadline = time.monotonic() + SECONDS
        while (answer := read_rank(tmp_path, request, 0)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert answer.status == "refused"
    assert re.fullmatch("the request is too old: 36.. s by the clock of this rank's machine", answer.why)


def test_a_request_of_a_clock_that_is_ahead_expires_as_others(tmp_path: Path) -> None:
    """It would keep others waiting until the job ends."""
    ahead = datetime.now(UTC) + timedelta(days=1)
    request = replace(new_request("run", [0], 1, first_step=10**9), asked_at=ahead)
    write_next_to(request_path(tmp_path, "run", request.id), msgspec.json.encode(request))
    with recorder(tmp_path, captures=CaptureLimits(expires_seconds=0.5)):
        deadline = time.monotonic() + SECONDS
        while (answer := read_rank(tmp_path, request, 0)) is None or answer.status == "asked":
            assert time.monotonic() < deadline, answer
            time.sleep(0.01)
    assert (answer.status, answer.why) == ("expired", "step 1000000000 was not reached in time")


def test_captures_follow_each_other_only_after_the_cooldown(tmp_path: Path) -> None:
    first = ask(tmp_path, steps=1, first_step=4)
    with recorder(tmp_path, captures=CaptureLimits(cooldown_seconds=60)) as perf:
        wait_for_request(tmp_path, first)
        for _ in range(6):
            one_step(perf)
        assert train_until_over(perf, tmp_path, first).status == "done"
        state = train_until_over(perf, tmp_path, ask(tmp_path))
    assert state.status == "refused"
    assert "request again in" in state.why


def test_hostile_requests_change_nothing(tmp_path: Path) -> None:
    folder = captures_folder(tmp_path, "run")
    folder.mkdir(parents=True)
    (folder / "a.json").write_bytes(b"\xff\x00" * 100)
    (folder / "b.json").write_bytes(b"[" * 60_000)
    (folder / "c.json").write_bytes(b" " * 1_000_000)
    os.mkfifo(folder / "d.json")
    (folder / "e.json").symlink_to("/dev/zero")
    (folder / "f.json").mkdir()
    good = new_request("run", [0], 1, first_step=5)
    (folder / "g.json").write_bytes(msgspec.json.encode(good))  # not named as its id
    other = new_request("another", [0], 1)
    (folder / f"{other.id}.json").write_bytes(msgspec.json.encode(other))
    ask_for_capture(tmp_path, good)
    with recorder(tmp_path, captures=CaptureLimits(total_steps=0)) as perf:
        assert "steps have been profiled" in train_until_over(perf, tmp_path, good).why
        assert len(perf.failures) == 8
    assert [state.request for state in captures(tmp_path, "run")] == [good]


def test_captures_can_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFAPP_CAPTURES", "off")
    request = ask(tmp_path)
    with recorder(tmp_path) as perf:
        assert not [thread for thread in threading.enumerate() if thread.name == "sfapp-captures"]
        for _ in range(3):
            one_step(perf)
    assert state_of(tmp_path, request).status == "asked"


def test_a_request_of_the_process_before_is_not_taken_up_again(tmp_path: Path) -> None:
    request = ask(tmp_path, first_step=10_000)
    with recorder(tmp_path) as perf:
        wait_for_request(tmp_path, request)
        one_step(perf)
    assert state_of(tmp_path, request).why == "rank 0: the recorder was closed before the first step"
    with recorder(tmp_path) as perf:
        one_step(perf)
        time.sleep(0.1)
    assert request_path(tmp_path, "run", request.id).exists()
    assert state_of(tmp_path, request).status == "refused"


def test_a_folder_of_many_files_is_listed_for_little_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a folder of requests with so many files of others that to list them takes three seconds
    mailbox, rank = FileCaptureMailbox(deque()), rank_of(tmp_path)
    clock = iter([0.0, 0.001, 1.0, 4.0])
    monkeypatch.setattr(time, "thread_time", lambda: next(clock))
    mailbox.new_requests(rank)
    assert mailbox.poll_seconds(rank) == 1.0
    # When a rank looks for requests
    mailbox.new_requests(rank)
    # Then it rests for much longer, so that training has the interpreter
    assert mailbox.poll_seconds(rank) >= 30.0


def test_names_of_removed_requests_are_dropped(tmp_path: Path) -> None:
    mailbox, rank = FileCaptureMailbox(deque(maxlen=8)), rank_of(tmp_path)
    for _ in range(5):
        requests = [ask(tmp_path) for _ in range(8)]
        assert sorted(each.id for each in mailbox.new_requests(rank)) == sorted(each.id for each in requests)
        assert mailbox.new_requests(rank) == []
        for request in requests:
            request_path(tmp_path, "run", request.id).unlink()
    assert len(mailbox._known) == 8
