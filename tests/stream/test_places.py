"""What heartbeats say of the training thread, and what becomes of silent ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from sfapp.model.rank_table import RankIdentity
from sfapp.model.samples import StandstillSample
from sfapp.model.standstill import (
    JobPositions,
    ProcessId,
    ProcessLook,
    RankGroup,
    RankState,
    ReportedPlace,
    RollCall,
    TrainingPlace,
    parse_roll_call,
    spans_of,
)
from sfapp.recorder.timing.timer_backend import new_state
from sfapp.recorder.training_place import place_of
from sfapp.stream.live_state import LiveSnapshot, RankSnapshot, RankStates
from sfapp.stream.message_parser import decode_from_rank
from sfapp.stream.messages import VERSION, Heartbeat, StreamHello, encode
from sfapp.stream.place_reporter import PlaceReporter
from sfapp.stream.process_looks import look_at, this_host, this_process
from sfapp.stream.silent_processes import SilentProcesses
from sfapp.stream.standstill_watch import StandstillWatch
from tests.stream.streams import until

HEAD: dict[str, Any] = {"v": VERSION, "rank": 0, "incarnation": "i"}
SECOND = 10**9


def hello(rank: int = 0) -> StreamHello:
    return StreamHello(v=VERSION, rank=rank, incarnation=f"{rank}", run_id="run", attempt="a", world_size=2)


class OldHeartbeat(msgspec.Struct, tag_field="type", tag="heartbeat"):
    """A heartbeat as an older sfapp decodes it."""

    v: int
    rank: int
    incarnation: str
    sent: int
    sent_ns: int


def test_heartbeats_of_old_and_new_versions_understand_each_other() -> None:
    new = Heartbeat(
        **HEAD, sent=1, sent_ns=2, place=ReportedPlace(step=3, stage="data", process=this_process())
    )
    assert msgspec.msgpack.decode(encode(new), type=OldHeartbeat).sent == 1
    assert decode_from_rank(encode(new)) == new
    old = decode_from_rank(msgspec.msgpack.encode(OldHeartbeat(VERSION, 0, "i", 1, 2)))
    assert isinstance(old, Heartbeat)
    assert not old.place


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_place_is_read_from_the_state_of_the_step(
    is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFAPP_COMPILED", "on" if is_compiled else "off")
    state = new_state(time.perf_counter_ns, lambda *_: None, lambda: None, lambda *_: None)
    state.use([{"data": 0}], 1)
    state.next_page(4)
    step, stage = state.new_step(), state.find_stage("data")
    seen = [place_of(state)]
    with step:
        seen.append(place_of(state))
        with stage:
            seen.append(place_of(state))
        seen.append(place_of(state))
    seen.append(place_of(state))
    assert [(place.step, place.stage) for place in seen] == [
        (0, None),
        (0, ""),
        (0, "data"),
        (0, ""),
        (1, None),
    ]
    assert len({place.mark for place in seen}) == 5
    assert seen[2].since_ns is not None


def test_a_report_shows_for_how_long_and_whether_the_thread_works() -> None:
    place = TrainingPlace(5, "data", None, "mark", threading.get_ident())
    clock = [time.perf_counter_ns()]
    reporter = PlaceReporter(lambda: place, lambda: clock[0])
    reporter.report()
    clock[0] += 2 * SECOND
    still = reporter.report()
    assert still is not None
    assert (still.still_ns, still.is_working) == (2 * SECOND, False)
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass
    clock[0] += SECOND
    working = reporter.report()
    assert working is not None
    assert working.is_working
    assert working.process == this_process()


def test_a_process_is_seen_running_stopped_and_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    started = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
    process = ProcessId(child.pid, started, this_host() or "")

    def state() -> str:
        look = look_at(process)
        return "?" if look is None else look.state

    until(lambda: state() in "RSD")
    child.send_signal(19)
    until(lambda: state() == "T")
    child.kill()
    until(lambda: state() == "Z")
    child.wait()
    assert state() == ""
    assert look_at(ProcessId(os.getpid(), 1, this_host() or "")) == ProcessLook(
        ProcessId(os.getpid(), 1, this_host() or ""), ""
    )
    assert look_at(ProcessId(os.getpid(), 1, "another host")) is None


def test_a_rank_of_the_same_host_is_asked_to_look_at_a_silent_one() -> None:
    now = [0.0]
    live = RankStates(lambda: now[0])
    silent = SilentProcesses(live)
    away = [ReportedPlace(step=1, process=ProcessId(rank, 1, "host")) for rank in range(2)]
    for rank in range(2):
        live.add_rank(hello(rank))
        live.set_place(hello(rank), away[rank])
    now[0] = 5.0
    live.touch(hello(0))
    silent.update()
    assert silent.asked_of(away[0]) == (away[1].process,)
    assert silent.asked_of(ReportedPlace(step=1, process=ProcessId(9, 1, "other"))) == ()
    assert away[1].process is not None
    seen = [ProcessLook(away[1].process, "T")]
    stranger = ReportedPlace(step=1, process=ProcessId(9, 1, "other"))
    for place in (None, ReportedPlace(step=1), stranger):
        silent.take(seen, place)
    assert [rank.look for rank in live.snapshot().ranks] == [None, None], "only its host can look at it"
    silent.take(seen, away[0])
    looks = [rank.look for rank in live.snapshot().ranks]
    assert looks == [None, ProcessLook(away[1].process, "T")]
    live.set_place(hello(1), away[1])
    assert live.snapshot().ranks[1].look is None


def snapshot_of(idle_s: float, has_left: bool = False) -> LiveSnapshot:
    row = np.array([[10, 100, 100]], dtype=np.int64)
    ranks = tuple(
        RankSnapshot("run", RankIdentity(rank, rank, 0, "h"), 2, ("a",), row, 0, 0.0, has_left, 0, 0, idle_s)
        for rank in range(2)
    )
    return LiveSnapshot(ranks, {}, {}, 0)


def roll(*states: RankState) -> RollCall:
    groups = [
        RankGroup(spans=spans_of([rank]), state=state, holds=rank == 1 or state == "dead")
        for rank, state in enumerate(states)
    ]
    return RollCall(
        kind="rank", certainty="shown", step=11, idle_s=40.0, limit_s=30.0, world_size=2, groups=tuple(groups)
    )


def test_a_standstill_is_written_when_it_begins_and_ends_and_the_first_cause_is_kept() -> None:
    now, found = [0.0], deque[RollCall | None]()

    def rule(job: JobPositions) -> RollCall | None:
        return found.popleft()

    watch = StandstillWatch(rule, lambda: now[0])

    def look(idle_s: float, answer: RollCall | None) -> StandstillSample | None:
        now[0] += 1.0
        found.append(answer)
        sample = watch.samples(snapshot_of(idle_s), int((1000 + now[0]) * SECOND)).get("run")
        found.clear()
        return sample

    assert look(38.0, None) is None
    begun = look(40.0, roll("collective", "stopped"))
    assert begun is not None
    assert (begun.step, begun.has_ended) == (11, False)
    assert [look(40.0 + second, roll("collective", "stopped")) for second in range(1, 7)] == [None] * 6
    assert look(47.0, roll("dead", "stopped")) is None  # A victim that is ended later.
    assert look(48.0, roll("collective", "dead")) is None
    assert look(49.0, None) is None  # No step was finished.
    ended = look(0.5, None)
    assert ended is not None
    assert (ended.has_ended, ended.began_ns) == (True, begun.began_ns)


def test_a_standstill_lasts_when_the_clock_is_set_and_is_confirmed_while_nothing_changes() -> None:
    """Readers take a standstill without samples for over."""
    now, set_s = [0.0], [0.0]
    answer: list[RollCall | None] = [roll("collective", "stopped")]
    watch = StandstillWatch(lambda job: answer[0], lambda: now[0])

    def look(idle_s: float, later_s: float = 1.0) -> StandstillSample | None:
        now[0] += later_s
        at_ns = int((1000 + set_s[0] + now[0]) * SECOND)
        return watch.samples(snapshot_of(idle_s), at_ns).get("run")

    look(39.0)
    begun = look(40.0)
    assert begun is not None
    set_s[0] = 3600.0
    moved = look(41.0)
    assert moved is not None
    assert (moved.has_ended, moved.began_ns) == (False, begun.began_ns)
    answer[0] = None  # All ranks are silent: the launcher has ended the job.
    found = [sample for second in range(65) if (sample := look(42.0 + second)) is not None]
    assert [sample.has_ended for sample in found] == [False, False]
    last = parse_roll_call(found[-1].roll_call)
    assert last is not None
    assert (last.idle_s, last.groups[0].still_s) == (100.0, 60.0)
    resumed = look(300.0, later_s=200.0)  # The aggregator itself was stopped.
    assert resumed is not None
    assert not resumed.has_ended
    over = look(0.5)
    assert over is not None
    assert over.has_ended
