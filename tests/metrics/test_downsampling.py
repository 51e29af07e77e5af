"""Old samples are merged, each field by its own aggregation."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from sfapp.metrics import StepPaceCounter
from sfapp.metrics.downsampling import downsampled as downsampled_pieces
from sfapp.model.samples import AnySample, GpuSample, NodeSample, PaceSample, ProcessSample

SECOND = 10**9


def downsampled(samples: Sequence[AnySample], every_s: int, piece: int = 7) -> list[AnySample]:
    """Return all downsampled samples, fed in small pieces."""
    pieces = [samples[first : first + piece] for first in range(0, len(samples), piece)]
    return [sample for ready in downsampled_pieces(pieces, every_s) for sample in ready]


def paces(samples: Sequence[AnySample]) -> list[PaceSample]:
    return [sample for sample in samples if isinstance(sample, PaceSample)]


def pace(second: float, rank: int, steps: int, mean: float, longest: int) -> PaceSample:
    return PaceSample(
        at_ns=round(second * SECOND), node_rank=0, rank=rank, step=round(second), steps=steps,
        wall_mean_ns=mean, wall_max_ns=longest,
    )  # fmt: skip


def test_missing_values_are_left_out_of_the_mean() -> None:
    samples = [
        NodeSample(at_ns=20 * SECOND, node_rank=1, hostname="a", cpu_percent=10.0, memory_used_bytes=7),
        NodeSample(at_ns=21 * SECOND, node_rank=1, hostname="a", cpu_percent=None, memory_used_bytes=9),
        NodeSample(at_ns=29 * SECOND, node_rank=1, hostname="b", cpu_percent=40.0, memory_used_bytes=8),
    ]
    (found,) = downsampled(samples, 10)
    assert found == NodeSample(
        at_ns=29 * SECOND, node_rank=1, hostname="b", cpu_percent=25.0, memory_used_bytes=9
    )


def test_mean_step_times_are_weighted_by_steps() -> None:
    (found,) = downsampled([pace(10, 3, 9, 100.0, 150), pace(11, 3, 1, 200.0, 200)], 10)
    assert found == pace(11, 3, 10, 110.0, 200)


def test_throttle_reasons_are_united() -> None:
    samples = [
        GpuSample(at_ns=second * SECOND, node_rank=0, gpu=0, throttle_reasons=reasons)
        for second, reasons in ((60, ("sw_power_cap",)), (61, ()), (62, ("hw_slowdown", "sw_power_cap")))
    ]
    (found,) = downsampled(samples, 60)
    assert isinstance(found, GpuSample)
    assert found.throttle_reasons == ("hw_slowdown", "sw_power_cap")


def test_subjects_are_merged_separately() -> None:
    samples: list[AnySample] = [
        *(GpuSample(at_ns=SECOND, node_rank=node, gpu=gpu) for node in (0, 1) for gpu in (0, 1)),
        *(ProcessSample(at_ns=SECOND, node_rank=0, rank=rank) for rank in (0, 1)),
        *(pace(1, rank, 1, 1.0, 1) for rank in (0, 1)),
    ]
    assert sorted(map(repr, downsampled(samples * 2, 10))) == sorted(
        map(
            repr,
            [
                sample if not isinstance(sample, PaceSample) else pace(1, sample.rank, 2, 1.0, 1)
                for sample in samples
            ],
        )
    )


@given(
    seconds=st.lists(st.integers(0, 10_000), min_size=1, max_size=200),
    every_s=st.sampled_from([10, 60]),
    ranks=st.integers(1, 3),
)
def test_no_step_is_lost_and_intervals_stay_separate(seconds: list[int], every_s: int, ranks: int) -> None:
    samples = [
        pace(second, number % ranks, 1 + number % 3, 5.0, second) for number, second in enumerate(seconds)
    ]
    found = paces(downsampled(samples, every_s))
    assert sum(sample.steps for sample in found) == sum(sample.steps for sample in samples)
    assert max(sample.wall_max_ns for sample in found) == max(seconds)
    in_order = paces(downsampled(sorted(samples, key=lambda sample: sample.at_ns), every_s))
    keys = [(sample.rank, sample.at_ns // (every_s * SECOND)) for sample in in_order]
    assert len(keys) == len(set(keys))
    assert [sample.at_ns // (every_s * SECOND) for sample in in_order] == sorted(key for _, key in keys)
    assert downsampled(in_order, every_s) == in_order


def test_steps_add_up_until_they_are_taken() -> None:
    paces = StepPaceCounter()
    paces.add(1, 0, [4, 5], [10, 30])
    paces.add(1, 0, [6], [20])
    paces.add(0, 0, [], [])
    assert paces.take(7) == [
        PaceSample(at_ns=7, node_rank=0, rank=1, step=6, steps=3, wall_mean_ns=20.0, wall_max_ns=30)
    ]
    assert paces.take(8) == []


def test_long_steps_can_be_taken_before_the_others() -> None:
    paces = StepPaceCounter()
    paces.add(0, 0, [7], [2_000_000_000])
    paces.add(1, 0, [7, 8], [300_000_000, 400_000_000])
    assert [(sample.rank, sample.step) for sample in paces.take(1, 1_000_000_000)] == [(0, 7)]
    assert [(sample.rank, sample.step) for sample in paces.take(2)] == [(1, 8)]
