"""The recorder on one rank, with a clock that tests can read: exact numbers."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import sfapp
from sfapp.errors import RecorderError
from sfapp.model import BETWEEN, Accumulation, RankIdentity
from sfapp.model.manifest import Parallelism
from sfapp.packets import read_windows
from sfapp.recorder import Recorder
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER, OTHER
from tests.recorder.clocked_recorder import Clock, only_window, recorder, train

pytestmark = pytest.mark.usefixtures("hot_path")


def test_a_step_is_closed_by_its_residual(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf:
        train(perf, clock, steps=3)
    window = only_window(tmp_path)
    assert window.stages == (BETWEEN, DATA, FORWARD, BACKWARD, CALLBACKS, OPTIMIZER, OTHER)
    assert window.duration_SNR[:, 0, 0].tolist() == [0, 100, 200, 300, 400, 500, 7]
    assert window.wall_NR[:, 0].tolist() == [1507] * 3
    assert window.step_N.tolist() == [0, 1, 2]
    assert window.manifest.closed_by == "full"
    assert window.manifest.overhead.train_ns == 3 * 1507


def test_a_stage_entered_twice_adds_up_and_a_missing_one_is_zero(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf, perf.step():
        for _ in range(2):
            with perf.stage(DATA):
                clock.tick(40)
    assert only_window(tmp_path).duration_SNR[:, 0, 0].tolist() == [0, 80, 0, 0, 0, 0, 0]


def test_windows_close_when_full_flushed_changed_or_shut_down(tmp_path: Path, clock: Clock) -> None:
    perf = recorder(tmp_path, clock, max_pending=8)
    train(perf, clock, steps=4)
    perf.flush()
    train(perf, clock)
    perf.reconfigure(stages=(DATA, BACKWARD))
    with perf.step(), perf.stage(BACKWARD):
        clock.tick(5)
    perf.reconfigure(accumulation=Accumulation(factor=2, ordered=False))
    with perf.step():
        clock.tick(5)
    perf.close()
    windows = [item.window for item in read_windows([tmp_path]).windows]
    assert [window.manifest.closed_by for window in windows] == [
        "full",
        "flush",
        "schema_change",
        "accumulation_change",
        "shutdown",
    ]
    assert [len(window.step_N) for window in windows] == [3, 1, 1, 1, 1]
    assert windows[3].stages == (BETWEEN, DATA, BACKWARD, OTHER)
    assert windows[4].manifest.accumulation.factor == 2


def test_micro_steps_are_kept_apart(tmp_path: Path, clock: Clock) -> None:
    options = {"accumulation": Accumulation(factor=2, ordered=True, sync="last")}
    with recorder(tmp_path, clock, **options) as perf, perf.step():
        for micro in range(2):
            with perf.micro_step(micro), perf.stage(DATA):
                clock.tick(10 + micro)
        with perf.stage(OPTIMIZER):
            clock.tick(3)
    window = only_window(tmp_path)
    spent = dict(zip(window.stages, window.duration_SNR[:, 0, 0].tolist(), strict=True))
    assert (spent[f"{DATA}[0]"], spent[f"{DATA}[1]"], spent[OPTIMIZER]) == (10, 11, 3)


def test_a_micro_step_that_the_accumulation_does_not_have_counts_as_residual(
    tmp_path: Path, clock: Clock
) -> None:
    options = {"accumulation": Accumulation(factor=2)}
    with recorder(tmp_path, clock, **options) as perf, perf.step():
        with perf.micro_step(2), perf.stage(DATA):
            clock.tick(10)
        with perf.stage(OPTIMIZER):
            clock.tick(3)
    window = only_window(tmp_path)
    spent = dict(zip(window.stages, window.duration_SNR[:, 0, 0].tolist(), strict=True))
    assert (spent[OPTIMIZER], spent[OTHER], sum(spent.values())) == (3, 10, 13)
    assert window.manifest.faults == ("unknown_stage",)
    seen = window.manifest.extra["faults_seen"]["unknown_stage"]
    assert seen == f"{DATA}, in an undeclared micro-step"


def test_collapsed_micro_steps_add_up_and_are_marked(tmp_path: Path, clock: Clock) -> None:
    options = {"accumulation": Accumulation(factor=2, ordered=False)}
    with recorder(tmp_path, clock, **options) as perf, perf.step():
        for micro in range(2):
            with perf.micro_step(micro), perf.stage(DATA):
                clock.tick(10)
    window = only_window(tmp_path)
    assert window.stages[:2] == (BETWEEN, DATA)
    assert window.duration_SNR[1, 0, 0] == 20
    assert not window.manifest.accumulation.ordered


def test_the_residual_may_be_named_and_is_no_fault(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf, perf.step(), perf.stage(OTHER):
        clock.tick(9)
    window = only_window(tmp_path)
    assert window.duration_SNR[-1, 0, 0] == 9
    assert window.manifest.faults == ()


def test_a_step_that_raises_is_left_out_and_the_error_passes_through(tmp_path: Path, clock: Clock) -> None:
    perf = recorder(tmp_path, clock)
    train(perf, clock)
    with pytest.raises(ZeroDivisionError), perf.step(), perf.stage(DATA):
        raise ZeroDivisionError
    train(perf, clock)
    perf.close()
    assert only_window(tmp_path).step_N.tolist() == [0, 2]


def test_a_disk_that_refuses_costs_the_window_not_the_training(tmp_path: Path, clock: Clock) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    perf = recorder(blocked, clock)
    train(perf, clock, steps=4)
    perf.close()
    assert perf.written == ()
    assert perf.failures[0].startswith("window 0:")


def test_what_fails_first_is_a_warning_in_the_log_and_all_of_it_is_kept(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with recorder(blocked, clock, max_pending=8) as perf:
        train(perf, clock, steps=9)
    assert len(perf.failures) == 3
    warning, last = caplog.records
    assert (warning.name, warning.levelname) == ("sfapp", "WARNING")
    assert perf.failures[0] in warning.getMessage()
    assert "3 windows of rank 0 were lost in all" in last.getMessage()


def test_an_error_of_the_recorder_s_own_ends_the_recording_and_not_the_training(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with recorder(tmp_path, clock) as perf:
        train(perf, clock, steps=3)
        perf.add_step(1.5, [{DATA: 0.5}])
        train(perf, clock, steps=3)
    assert perf.failures[0].startswith("recording stopped: TypeError: 'float' object cannot be interpreted")
    assert len(caplog.records) == 1
    assert only_window(tmp_path).step_N.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "step",
    [
        {"wall_ns": None, "micro_steps": [{}]},
        {"wall_ns": 10, "micro_steps": 3},
        {"wall_ns": 10, "micro_steps": [{DATA: "5"}]},
        {"wall_ns": 10, "micro_steps": [{}], "faults": {"hook_failed": 1}},
        {"wall_ns": 10, "micro_steps": [{}], "waits": [{DATA: 2**80}]},
        {"wall_ns": 10, "micro_steps": [{}], "syncs": 1},
    ],
)
def test_a_step_timed_elsewhere_never_raises_whatever_it_holds(
    tmp_path: Path, clock: Clock, step: dict[str, Any]
) -> None:
    with recorder(tmp_path, clock) as perf:
        train(perf, clock, steps=3)
        perf.add_step(**step)
        perf.add_step(**step)
    assert [failure.split(":")[0] for failure in perf.failures] == ["recording stopped"]
    assert only_window(tmp_path).step_N.tolist() == [0, 1, 2]


def test_windows_end_at_the_same_step_on_every_rank_whatever_a_rank_left_out(
    tmp_path: Path, clock: Clock
) -> None:
    with recorder(tmp_path, clock) as perf:
        for failing in (True, False, False, False):
            with contextlib.suppress(ValueError), perf.step():
                clock.tick(1)
                if failing:
                    raise ValueError
    windows = [item.window for item in read_windows([tmp_path]).windows]
    assert [window.step_N.tolist() for window in windows] == [[1, 2], [3]]


def test_a_run_that_is_started_again_never_overwrites_its_windows(tmp_path: Path, clock: Clock) -> None:
    for _ in range(3):
        with recorder(tmp_path, clock) as perf:
            train(perf, clock, steps=4)
    assert [item.window.number for item in read_windows([tmp_path]).windows] == [0, 1, 2, 3, 4, 5]


def test_two_recorders_of_one_run_replace_no_window_of_each_other(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = (recorder(tmp_path, clock, max_pending=8) for _ in range(3))
    for place, perf in enumerate((first, second, third)):
        train(perf, clock, steps=4, other=7 + place)
        perf.close()
    assert [path.name for path in first.written] == ["00000000.parquet", "00000001.parquet"]
    assert [path.name for path in second.written] == ["00000000.rank0.parquet", "00000001.rank0.parquet"]
    assert second.failures[0].startswith("window 0 is written as a part: another recorder has written it")
    assert not third.written
    assert "2 windows of rank 0 were lost in all" in caplog.records[-1].getMessage()
    assert len(read_windows([tmp_path]).conflicts) == 2


def test_two_recorders_that_write_a_window_at_the_same_time_replace_no_window_of_each_other(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, left, flush = threading.Barrier(2), [None] * 2, os.fsync

    def flush_when_both_do(descriptor: int) -> None:
        if left:
            left.pop()
            both.wait(10)
        flush(descriptor)

    jobs = [recorder(tmp_path, clock) for _ in range(2)]
    monkeypatch.setattr(os, "fsync", flush_when_both_do)
    for place, perf in enumerate(jobs):
        train(perf, clock, steps=3, other=7 + place)
    for perf in jobs:
        perf.close()
    assert sorted(path.name for perf in jobs for path in perf.written) == [
        "00000000.parquet",
        "00000000.rank0.parquet",
    ]
    (failure,) = (failure for perf in jobs for failure in perf.failures)
    assert failure.startswith("window 0 is written as a part: another recorder has written it")
    assert len(read_windows([tmp_path]).conflicts) == 1


@pytest.mark.parametrize("number", [10**18 - 1, 10**18, 10**40])
def test_a_file_with_a_number_that_no_window_reaches_costs_a_run_nothing(
    tmp_path: Path, clock: Clock, number: int
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / f"{number}.parquet").touch()
    with recorder(tmp_path, clock) as perf:
        train(perf, clock, steps=4)
    assert [path.name for path in perf.written] == ["00000000.parquet", "00000001.parquet"]


def test_times_and_role_are_those_of_the_window(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock, roles="dp") as perf:
        train(perf, clock, steps=2)
        perf.reconfigure(role="expert")
        train(perf, clock, steps=1)
    first, second = (item.window for item in read_windows([tmp_path]).windows)
    assert first.manifest.closed_by == "role_change"
    assert (first.ranks.role, second.ranks.role) == (("dp",), ("expert",))
    moments = [first.manifest.started_at, first.manifest.ended_at, second.manifest.started_at]
    assert moments == sorted(moments, key=lambda moment: datetime.fromisoformat(moment or ""))


def test_a_layout_is_that_of_the_window_and_may_be_declared_later(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock, layout={"dp": 1}) as perf:
        train(perf, clock, steps=2)
        perf.declare(layout={"dp": 1})
        perf.declare(layout={"dp": 1, "pp": 2})
        perf.declare(wrapper="ddp")
        perf.declare(layout={"zz": 1})
        train(perf, clock, steps=1)
    first, second = (item.window for item in read_windows([tmp_path]).windows)
    assert first.manifest.closed_by == "role_change"
    assert (first.layout, second.layout) == ({"dp": (1,)}, {"dp": (1,), "pp": (2,)})
    assert second.manifest.wrapper == "ddp"
    assert second.manifest.faults == ("reconfigure_refused",)
    assert second.manifest.extra["faults_seen"]["reconfigure_refused"].startswith(
        "layout has the dimension 'zz'"
    )


def test_an_overlap_is_left_for_the_reader_to_see(tmp_path: Path, clock: Clock) -> None:
    """A clock that jumps forward inside a stage and back outside makes stages exceed the step."""
    with recorder(tmp_path, clock) as perf, perf.step():
        with perf.stage(DATA):
            clock.tick(100)
        clock.tick(-40)
    window = only_window(tmp_path)
    assert (window.wall_NR[0, 0], window.duration_SNR[1, 0, 0], window.duration_SNR[-1, 0, 0]) == (60, 100, 0)


def test_after_close_nothing_more_is_recorded(tmp_path: Path, clock: Clock) -> None:
    perf = recorder(tmp_path, clock)
    train(perf, clock)
    perf.close()
    train(perf, clock, steps=5)
    perf.close()
    assert [len(item.window.step_N) for item in read_windows([tmp_path]).windows] == [1]


def test_identity_comes_from_torchrun_s_environment(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "5", "LOCAL_RANK": "1", "GROUP_RANK": "2", "WORLD_SIZE": "6"}.items():
        monkeypatch.setenv(name, value)
    with recorder(tmp_path, clock, roles="dp") as perf:
        train(perf, clock)
    # without torch.distributed this rank can only leave its own part
    assert [path.name for path in perf.written] == ["00000000.rank5.parquet"]
    window = only_window(tmp_path)
    identity = window.ranks.identity(0)
    assert (identity.rank, identity.local_rank, identity.node_rank, identity.role) == (5, 1, 2, "dp")
    assert "torch.distributed was not initialised" in (window.manifest.gather_error or "")


def test_names_from_the_environment_that_are_no_unicode_are_written_escaped(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "train-\udcff")  # as Python reads bytes that are no UTF-8
    place = RankIdentity(0, 0, 0, "node-\udcff")
    with sfapp.Recorder(tmp_path, clock=clock, identity=place) as perf:
        train(perf, clock)
    window = only_window(tmp_path)
    assert window.run_id == r"train-\udcff"
    assert window.ranks.hostname == (r"node-\udcff",)
    assert window.manifest.recorder.host == r"node-\udcff"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_steps": 0}, "must be positive"),
        ({"timeout": 0}, "must be positive"),
        ({"timeout": math.inf}, "at most 1,000,000 seconds, not inf"),
        ({"timeout": math.nan}, "at most 1,000,000 seconds, not nan"),
        ({"first_step": 2**62}, "must not be above"),
        ({"wrapper": "deepspeed"}, "wrapper must be one of single, ddp, .*, not 'deepspeed'"),
        ({"prefetch": None}, "prefetch must be one of aligned, unaligned, unknown, not 'None'"),
        ({"model_fit": "yes"}, "model_fit must be a valid bool"),
        ({"parallelism": Parallelism(dp=2.5)}, "parallelism must be a valid Parallelism"),
        ({"gather": "mpi"}, "gather must be one of"),
        ({"event_fraction": 2}, "between 0 and 1"),
        ({"roles": []}, "none for rank 0"),
        ({"run_id": ""}, "run_id must have"),
        ({"run_id": "half \ud83d"}, "run_id must be valid Unicode"),
        ({"stages": ("half \ud83d",)}, "a stage's name must be valid Unicode"),
        ({"stages": ([DATA],)}, "a stage's name must have 1 to 256 characters"),
        ({"roles": "half \ud83d"}, "the role must be valid Unicode"),
        ({"stages": ("a", "a")}, "different names"),
        ({"stages": ("a", OTHER)}, "which is added"),
        ({"stages": ("a", "step")}, "a stage cannot be called 'step'"),
        ({"stages": ("a", "side.a")}, "a stage cannot be called 'side.a'"),
        ({"stages": ("a[0]", "a[1]")}, "a stage cannot be called 'a.0.'"),
        ({"accumulation": Accumulation(ordered=None)}, "accumulation must be a valid Accumulation"),
        ({"accumulation": 2}, "accumulation must be a valid Accumulation"),
        ({"accumulation": Accumulation(factor=0)}, "at least 1"),
        ({"layout": {"xp": 0}}, "the dimension 'xp', which is none of dp, pp, tp, ep, cp"),
        ({"layout": {"dp": -1}}, "the coordinate in dp must be a whole number from 0, not -1"),
        ({"layout": {"dp": True}}, "the coordinate in dp must be a whole number"),
        ({"layout": 3}, "layout must give this rank's coordinates by dimension, not '3'"),
    ],
)
def test_arguments_that_cannot_work_are_refused_at_construction(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(RecorderError, match=message):
        sfapp.Recorder(tmp_path, **{"run_id": "run", **options})


@pytest.mark.parametrize("roles", ["pp0", {0: "pp0", 1: "pp1"}, ["pp0", "pp1"]])
def test_what_is_declared_is_in_the_packet(tmp_path: Path, clock: Clock, roles: object) -> None:
    declared = {"wrapper": "fsdp1", "parallelism": Parallelism(dp=2, pp=2), "prefetch": "aligned"}
    with recorder(tmp_path, clock, roles=roles, model_fit=True, **declared) as perf:
        train(perf, clock)
    window = only_window(tmp_path)
    assert window.ranks.role == ("pp0",)
    assert window.manifest.model_fit
    assert {name: getattr(window.manifest, name) for name in declared} == declared


def test_an_environment_that_makes_no_sense_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "three")
    with pytest.raises(RecorderError, match="RANK='three'"):
        Recorder(tmp_path, run_id="run")


def test_a_given_identity_wins(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock, identity=RankIdentity(0, 0, 3, "node-3", "pp0")) as perf:
        train(perf, clock)
    assert only_window(tmp_path).ranks.hostname == ("node-3",)
