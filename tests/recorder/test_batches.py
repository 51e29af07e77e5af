"""A data wait belongs to the step that consumes the batch, whichever code requests it and when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import sfapp
from sfapp.model import Accumulation, Gates, Window
from sfapp.packets import read_window, read_windows
from sfapp.recorder import Recorder
from tests.builders import BACKWARD, DATA, FORWARD
from tests.recorder.clocked_recorder import Clock, only_window, recorder, train

pytestmark = pytest.mark.usefixtures("hot_path")

WAITS = (100, 200, 300, 400)
"""What the loader takes for each batch."""


class Loader:
    """Batches that take their time."""

    def __init__(self, clock: Clock, waits: tuple[int, ...] = WAITS) -> None:
        self.clock, self.waits = clock, waits

    def __iter__(self) -> Iterator[int]:
        for number, wait in enumerate(self.waits):
            self.clock.tick(wait)
            yield number

    def __len__(self) -> int:
        return len(self.waits)


def work(perf: Recorder, clock: Clock) -> None:
    with perf.stage(FORWARD):
        clock.tick(10)


def before_the_step(perf: Recorder, clock: Clock) -> None:
    for _ in perf.batches(Loader(clock)):
        with perf.step():
            work(perf, clock)


def inside_the_step(perf: Recorder, clock: Clock) -> None:
    batches = iter(perf.batches(Loader(clock)))
    for _ in WAITS:
        with perf.step():
            next(batches)
            work(perf, clock)


def inside_the_data_stage(perf: Recorder, clock: Clock) -> None:
    batches = iter(perf.batches(Loader(clock)))
    for _ in WAITS:
        with perf.step():
            with perf.stage(DATA):
                next(batches)
            work(perf, clock)


def one_step_ahead(perf: Recorder, clock: Clock) -> None:
    """The next batch is fetched while the step computes, as a CUDA prefetcher does it."""
    batches = iter(perf.batches(Loader(clock)))
    batch = next(batches, None)
    while batch is not None:
        with perf.step():
            work(perf, clock)
            batch = next(batches, None)


def one_step_ahead_inside_a_stage(perf: Recorder, clock: Clock) -> None:
    batches = iter(perf.batches(Loader(clock)))
    batch = next(batches, None)
    while batch is not None:
        with perf.step():
            with perf.stage(DATA):
                following = next(batches, None)
            work(perf, clock)
            batch = following


@pytest.mark.parametrize(
    "loop",
    [
        before_the_step,
        inside_the_step,
        inside_the_data_stage,
        one_step_ahead,
        one_step_ahead_inside_a_stage,
    ],
)
def test_a_wait_is_charged_to_the_step_that_consumes_the_batch(
    tmp_path: Path, clock: Clock, loop: Callable[[Recorder, Clock], None]
) -> None:
    with recorder(tmp_path, clock, window_steps=4) as perf:
        loop(perf, clock)
    window = read_window(tmp_path)
    assert window.duration_SNR[1, :, 0].tolist() == list(WAITS)
    assert window.wall_NR[:, 0].tolist() == [wait + 10 for wait in WAITS]
    assert window.duration_SNR.sum(axis=0).tolist() == window.wall_NR.tolist()
    assert window.manifest.faults == ()


def test_micro_batches_count_for_their_micro_steps(tmp_path: Path, clock: Clock) -> None:
    accumulation = Accumulation(factor=2, ordered=True)
    with recorder(tmp_path, clock, window_steps=2, accumulation=accumulation) as perf:
        batches = iter(perf.batches(Loader(clock)))
        for _ in range(2):
            with perf.step():
                for micro in range(2):
                    with perf.micro_step(micro):
                        next(batches)
                        work(perf, clock)
    window = read_window(tmp_path)
    data = [window.stages.index(f"{DATA}[{micro}]") for micro in range(2)]
    assert [window.duration_SNR[column, :, 0].tolist() for column in data] == [[100, 300], [200, 400]]
    assert window.manifest.faults == ()


def on_another_thread(perf: Recorder, clock: Clock) -> None:
    batches = iter(perf.batches(Loader(clock)))
    with perf.step():
        thread = threading.Thread(target=next, args=(batches,))
        thread.start()
        thread.join()
        work(perf, clock)


def three_ahead(perf: Recorder, clock: Clock) -> None:
    batches = iter(perf.batches(Loader(clock)))
    with perf.step():
        for _ in range(3):
            next(batches)
        work(perf, clock)


def two_before_a_step(perf: Recorder, clock: Clock) -> None:
    batches = iter(perf.batches(Loader(clock)))
    next(batches)
    next(batches)
    with perf.step():
        work(perf, clock)


@pytest.mark.parametrize("loop", [on_another_thread, three_ahead, two_before_a_step])
def test_an_unknown_step_of_a_batch_is_reported_in_the_window(
    tmp_path: Path, clock: Clock, loop: Callable[[Recorder, Clock], None]
) -> None:
    with recorder(tmp_path, clock) as perf:
        loop(perf, clock)
    window = read_window(tmp_path)
    assert window.manifest.faults == ("prefetch_unaligned",)
    assert int(window.duration_SNR.min()) >= 0
    assert window.duration_SNR.sum(axis=0).tolist() == window.wall_NR.tolist()
    diagnosis = sfapp.diagnose(window, Gates(floor_ns=1))
    assert "prefetch_unaligned" in next(
        label.reasons for label in diagnosis.labels if label.label == "telemetry_limited"
    )


def test_a_loader_can_be_gone_through_again_and_keeps_its_length(tmp_path: Path, clock: Clock) -> None:
    with recorder(tmp_path, clock) as perf:
        batches = perf.batches(Loader(clock))
        assert len(batches) == 4
        assert list(batches) == list(batches) == [0, 1, 2, 3]


class Squares(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, place: int) -> torch.Tensor:
        return torch.tensor(place**2)


def test_a_data_loader_with_worker_processes_gives_the_same_batches(tmp_path: Path) -> None:
    loader = DataLoader(Squares(), batch_size=2, num_workers=2)
    with Recorder(tmp_path, run_id="run", window_steps=6) as perf:
        seen = []
        for batch in perf.batches(loader):
            with perf.step():
                seen += batch.tolist()
    assert seen == [place**2 for place in range(12)]
    window = read_window(tmp_path)
    assert window.duration_SNR[1, 0, 0] > 0  # the workers had to start
    assert window.manifest.faults == ()


# --- which micro-steps exchange gradients -------------------------------------------------------------------


def micro_steps(perf: Recorder, clock: Clock, pattern: tuple[bool, ...]) -> None:
    with perf.step():
        for micro, sync in enumerate(pattern):
            with perf.micro_step(micro, sync=sync), perf.stage(BACKWARD):
                clock.tick(10 * (micro + 1))


def windows(root: Path) -> list[Window]:
    return [found.window for found in read_windows([root]).windows]


def test_a_change_of_the_sync_pattern_closes_the_window_before_the_step_that_changed(
    tmp_path: Path, clock: Clock
) -> None:
    accumulation = Accumulation(factor=2, ordered=True, sync="every")
    with recorder(tmp_path, clock, window_steps=10, accumulation=accumulation) as perf:
        for pattern in ((True, True), (True, True), (False, True), (False, True), (True, True)):
            micro_steps(perf, clock, pattern)
    first, second, third = windows(tmp_path)
    assert [window.manifest.accumulation.sync for window in (first, second, third)] == [
        "every", "last", "every",
    ]  # fmt: skip
    assert first.manifest.closed_by == "accumulation_change"
    assert [window.step_N.tolist() for window in (first, second, third)] == [[0, 1], [2, 3], [4]]
    column = second.stages.index(f"{BACKWARD}[1]")
    assert second.duration_SNR[column, :, 0].tolist() == [20, 20]


def test_fewer_micro_steps_than_declared_are_a_fault(tmp_path: Path, clock: Clock) -> None:
    accumulation = Accumulation(factor=4, ordered=True, sync="last")
    with recorder(tmp_path, clock, accumulation=accumulation) as perf:
        micro_steps(perf, clock, (False, True))
    (window,) = windows(tmp_path)
    assert window.manifest.faults == ("accumulation_mixed",)
    labels = {label.label: label.reasons for label in sfapp.diagnose(window, Gates(floor_ns=1)).labels}
    assert "accumulation_mixed" in labels["gradient_accumulation_ambiguous"]


def test_a_loader_with_a_property_that_raises_is_recorded(tmp_path: Path, clock: Clock) -> None:
    class Unwilling(list[int]):
        @property
        def num_workers(self) -> int:
            raise ValueError

    with recorder(tmp_path, clock) as perf:
        for _ in perf.batches(Unwilling([1, 2])):
            train(perf, clock)
    assert only_window(tmp_path).step_N.tolist() == [0, 1]
