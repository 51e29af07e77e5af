"""The recorder on one rank, with a clock that tests can read: exact numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER, OTHER

import sfapp
from sfapp.errors import RecorderError
from sfapp.model import Accumulation, RankIdentity, Window
from sfapp.packets import read_window, read_windows
from sfapp.record import Recorder


class Clock:
    """A monotonic clock that stands still until told."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now

    def tick(self, ns: int) -> None:
        self.now += ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


def recorder(root: Path, clock: Clock, **options: object) -> Recorder:
    return Recorder(root, run_id="run", clock=clock, **{"window_steps": 3, **options})


def train(perf: Recorder, clock: Clock, steps: int = 1, other: int = 7) -> None:
    for _ in range(steps):
        with perf.step():
            for place, name in enumerate((DATA, FORWARD, BACKWARD, CALLBACKS, OPTIMIZER)):
                with perf.stage(name):
                    clock.tick(100 * (place + 1))
            clock.tick(other)


def only_window(root: Path) -> Window:
    return read_window(root)


def test_a_step_is_closed_by_its_residual(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf:
        train(perf, clock, steps=3)
    window = only_window(tmp_path)
    assert window.stages == (DATA, FORWARD, BACKWARD, CALLBACKS, OPTIMIZER, OTHER)
    assert window.duration_SNR[:, 0, 0].tolist() == [100, 200, 300, 400, 500, 7]
    assert window.wall_NR[:, 0].tolist() == [1507] * 3
    assert window.step_N.tolist() == [0, 1, 2]
    assert window.manifest.closed_by == "full"
    assert window.manifest.overhead.train_ns == 3 * 1507


def test_a_stage_entered_twice_adds_up_and_a_missing_one_is_zero(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf, perf.step():
        for _ in range(2):
            with perf.stage(DATA):
                clock.tick(40)
    assert only_window(tmp_path).duration_SNR[:, 0, 0].tolist() == [80, 0, 0, 0, 0, 0]


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
    assert windows[3].stages == (DATA, BACKWARD, OTHER)
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


@pytest.mark.parametrize(
    "fault", ["nested_stages", "unknown_stage", "stage_outside_step", "nonmonotonic_clock"]
)
def test_misuse_is_a_fault_in_the_packet_and_never_an_error(tmp_path: Path, clock: Clock, fault: str) -> None:
    with recorder(tmp_path, clock) as perf:
        if fault == "stage_outside_step":
            with perf.stage(DATA):
                clock.tick(1)
        with perf.step():
            if fault == "nested_stages":
                with perf.stage(FORWARD), perf.stage(DATA):
                    clock.tick(50)
            if fault == "unknown_stage":
                with perf.stage("no.such"):
                    clock.tick(50)
            if fault == "nonmonotonic_clock":
                with perf.stage(DATA):
                    clock.tick(-50)
            clock.tick(100)
    window = only_window(tmp_path)
    assert window.manifest.faults == (fault,)
    assert int(window.duration_SNR.min()) >= 0
    if fault == "nested_stages":  # the time counts once, for the outer stage
        assert window.duration_SNR[:2, 0, 0].tolist() == [0, 50]
    if fault == "unknown_stage":
        assert int(window.duration_SNR[-1, 0, 0]) == 150


def test_a_step_that_raises_is_left_out_and_the_error_passes_through(tmp_path: Path, clock: Clock) -> None:
    perf = recorder(tmp_path, clock)
    train(perf, clock)
    with pytest.raises(ZeroDivisionError), perf.step(), perf.stage(DATA):
        1 / 0  # noqa: B018
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
    with recorder(tmp_path, clock, role="dp") as perf:
        train(perf, clock)
    # without torch.distributed this rank can only leave its own part
    assert [path.name for path in perf.written] == ["00000000.rank5.parquet"]
    window = only_window(tmp_path)
    identity = window.ranks.identity(0)
    assert (identity.rank, identity.local_rank, identity.node_rank, identity.role) == (5, 1, 2, "dp")
    assert "torch.distributed was not initialised" in (window.manifest.gather_error or "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_steps": 0}, "must be positive"),
        ({"run_id": ""}, "run_id must have"),
        ({"stages": ("a", "a")}, "different names"),
        ({"stages": ("a", OTHER)}, "which is added"),
        ({"accumulation": Accumulation(factor=0)}, "at least 1"),
    ],
)
def test_arguments_that_cannot_work_are_refused_at_construction(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(RecorderError, match=message):
        sfapp.Recorder(tmp_path, **{"run_id": "run", **options})


def test_an_environment_that_makes_no_sense_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "three")
    with pytest.raises(RecorderError, match="RANK='three'"):
        Recorder(tmp_path, run_id="run")


def test_a_given_identity_wins(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock, identity=RankIdentity(0, 0, 3, "node-3", "pp0")) as perf:
        train(perf, clock)
    assert only_window(tmp_path).ranks.hostname == ("node-3",)
