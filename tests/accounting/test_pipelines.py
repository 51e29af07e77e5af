"""Pipelines with one rank per stage: which stage bounds the step, the bubble, micro-steps and the past."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sfapp.accounting import diagnose_runs, judge, measure
from sfapp.model import Diagnosis, Window
from sfapp.model.pipeline import Pipeline
from sfapp.views import text as words
from sfapp.views.text.pipeline import pipeline_sentences
from tests.accounting.simulated_pipelines import one_step, pipeline_window, work
from tests.builders import MS, ddp_job, reduced, window_of


def pipeline_of(window: Window) -> Pipeline:
    found = judge(measure(window)).pipeline
    assert found is not None
    return found


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("slow", [0, 1, 3])
def test_the_slow_stage_bounds_the_step_and_fixing_it_is_predicted(
    schedule: str, merged: bool, slow: int
) -> None:
    forward, backward = work()
    fixed_ms = np.mean([one_step(f, b, schedule)[0] for f, b in zip(forward, backward, strict=True)])
    forward[:, slow] *= 1.4
    backward[:, slow] *= 1.4
    found = pipeline_of(pipeline_window(forward, backward, schedule=schedule, merged=merged))
    assert found.bounding == slow
    assert found.chance is not None
    assert found.chance < 1e-6
    assert found.of(slow).balance == pytest.approx(1.4 / 1.1 - 1, abs=0.01)
    assert found.of(slow).low < 1.4 / 1.1 - 1 < found.of(slow).high or merged
    assert found.error is not None
    assert found.error < 0.05
    assert found.fixed_ns == pytest.approx(fixed_ms * MS, rel=0.02)
    assert found.schedule is not None


def test_a_pipeline_of_too_many_micro_steps_is_not_replayed() -> None:
    window = pipeline_window(*work(), merged=True)
    many = replace(window.manifest, accumulation=replace(window.manifest.accumulation, factor=5000))
    found = pipeline_of(replace(window, manifest=many))
    assert (found.reason, found.fixed_ns) == ("pipeline_too_large", None)


@given(some.integers(2, 6), some.integers(1, 12), some.sampled_from(["1f1b", "gpipe"]))
@settings(max_examples=25, deadline=None)
def test_a_balanced_pipeline_has_the_bubble_of_theory_and_no_bounding_stage(
    stages: int, micro_steps: int, schedule: str
) -> None:
    forward, backward = work(stages, micro_steps, steps=6, noise=0.0)
    found = pipeline_of(pipeline_window(forward, backward, schedule=schedule, merged=True))
    assert found.ideal_idle == (stages - 1) / (micro_steps + stages - 1)
    assert [one.idle for one in found.stages] == pytest.approx([found.ideal_idle] * stages, abs=1e-6)
    assert found.bounding is None
    assert found.error == pytest.approx(0.0, abs=1e-6)
    assert found.balanced_ns == pytest.approx((micro_steps + stages - 1) * 30 * MS)


def test_noise_bounds_nothing() -> None:
    bounded = [
        seed
        for seed in range(30)
        if pipeline_of(pipeline_window(*work(seed=seed, noise=0.1), merged=True)).bounding is not None
    ]
    assert bounded == []


def test_a_slow_micro_step_is_named_on_its_stage_or_on_all() -> None:
    forward, backward = work()
    forward[:, 2, 5] += 15
    found = pipeline_of(pipeline_window(forward, backward))
    assert found.of(2).slow_micro_steps == (5,)
    assert found.of(2).slow_ns == pytest.approx(15 * MS, rel=0.1)
    assert [one.stage for one in found.stages if one.slow_micro_steps] == [2]
    forward[:, :, 3] += 15
    found = pipeline_of(pipeline_window(forward, backward))
    assert found.slow_micro_steps == (3,)
    assert found.of(2).slow_micro_steps == (5,)


def test_a_trend_over_micro_steps_is_found() -> None:
    forward, backward = work()
    backward[:, 1] *= 1 + 0.3 * np.arange(8) / 7
    found = pipeline_of(pipeline_window(forward, backward))
    assert found.of(1).trend == pytest.approx(0.2 / 1.1, rel=0.15)  # two thirds of the time are backward
    assert [one.stage for one in found.stages if one.trend is not None] == [1]


def run_of(windows: int = 7, slow_from: int = 6) -> list[Diagnosis]:
    made = []
    for number in range(windows):
        forward, backward = work(seed=number)
        if number >= slow_from:
            backward[:, 2] *= 1.3
        made.append(pipeline_window(forward, backward, merged=True, number=number))
    return diagnose_runs(made)


def test_a_stage_is_compared_with_its_own_past() -> None:
    *healthy, slow = run_of()
    for one in healthy:
        assert one.pipeline is not None
        assert not any(stage.growth is not None and stage.growth.is_clear for stage in one.pipeline.stages)
    assert slow.pipeline is not None
    grown = {one.stage: one.growth for one in slow.pipeline.stages if one.growth and one.growth.is_clear}
    assert list(grown) == [2]
    assert grown[2].effect == pytest.approx(0.2, abs=0.01)
    assert grown[2].low < 0.2 < grown[2].high
    (first, *_) = pipeline_sentences(slow)
    assert first.startswith("Pipeline stage 2 (rank 2) takes 20.0 % (")
    assert "the median of the other stages" in first


def test_one_stage_alone_is_compared_with_its_past_and_its_micro_steps() -> None:
    forward, backward = work()
    forward[:, 2, 5] += 15
    window = pipeline_window(forward, backward).of_group("role:pp2")
    diagnosis = judge(measure(window))
    assert diagnosis.ranks == 1
    assert diagnosis.pipeline is not None
    assert diagnosis.pipeline.of(2).slow_micro_steps == (5,)
    assert "micro-step 5 takes" in " ".join(words.verdict(diagnosis).explanation)


def test_durations_that_include_unknown_waits_are_not_compared() -> None:
    window = pipeline_window(*work())
    hidden = replace(
        window_of(window.duration_SNR[:-1], stages=window.stages[:-1], roles=window.ranks.role), waits={}
    )
    found = judge(measure(hidden)).pipeline
    assert found is None or (found.bounding, found.reason) == (None, "no_waits_recorded")


def test_replicas_are_pipelines_of_their_own() -> None:
    forward, backward = work()
    one = pipeline_window(forward, backward, merged=True)
    two = window_of(
        np.concatenate([one.duration_SNR, one.duration_SNR], axis=2),
        stages=one.stages,
        layout={"dp": [0] * 4 + [1] * 4, "pp": [*range(4), *range(4)]},
        accumulation=one.manifest.accumulation,
    )
    found, alone = pipeline_of(two), pipeline_of(one)
    assert [each.ranks for each in found.stages] == [2] * 4
    assert [each.own_ns for each in found.stages] == pytest.approx([each.own_ns for each in alone.stages])
    assert found.balanced_ns == pytest.approx(alone.balanced_ns)


@pytest.mark.parametrize(
    "window",
    [
        window_of(ddp_job(ranks=4, steps=8)),  # no pipeline
        pipeline_window(*work(steps=4), merged=True),  # too few steps
        pipeline_window(*work(stages=1), merged=True),
        reduced(window_of(ddp_job(ranks=4, steps=8), roles=["pp0", "pp1", "pp2", "pp3"])),
    ],
)
def test_without_a_pipeline_there_is_no_comparison(window: Window) -> None:
    assert judge(measure(window)).pipeline is None


def test_the_verdict_names_the_stage_instead_of_too_few_ranks() -> None:
    forward, backward = work()
    backward[:, 3] *= 1.5
    diagnosis = judge(measure(pipeline_window(forward, backward, merged=True)))
    card = words.verdict(diagnosis)
    assert "Pipeline stage 3 (rank 3) bounds the step" in " ".join(card.explanation)
    if diagnosis.is_healthy:
        assert card.headline == "Pipeline stage 3 bounds the step"
    document = json.loads(json.dumps(diagnosis.document()))
    assert document["pipeline"]["bounding"] == 3
    assert msgspec.json.decode(msgspec.json.encode(diagnosis), type=Diagnosis).pipeline == diagnosis.pipeline


def test_a_claim_of_endless_merged_micro_steps_takes_no_memory() -> None:
    window = pipeline_window(*work(), merged=True)
    many = replace(window.manifest, accumulation=replace(window.manifest.accumulation, factor=2**62))
    found = pipeline_of(replace(window, manifest=many))
    assert (found.micro_steps, found.reason) == (2**62, "pipeline_too_large")
    assert found.of(0).own_ns == pipeline_of(window).of(0).own_ns


def test_a_thousand_pipeline_stages_are_compared() -> None:
    window = pipeline_window(*work(stages=8, micro_steps=1, steps=6), merged=True)
    wide = replace(
        window,
        duration_SNR=np.tile(window.duration_SNR, 128),
        wall_NR=np.tile(window.wall_NR, 128),
        ranks=window_of(ddp_job(ranks=1024), roles=[f"pp{stage}" for stage in range(1024)]).ranks,
        manifest=replace(window.manifest, world_size=1024),
    )
    found = pipeline_of(wide)
    assert [one.stage for one in found.stages] == list(range(1024))
    assert found.of(1023).own_ns == found.of(7).own_ns
