"""From other people's traces to a verdict with stage, rank and operator, and what cannot be known.

They are not part of this repository: they are looked for beside it, or under ``SFAPP_TRACES``.
"""

from __future__ import annotations

import pytest

from benchmarks.trace_verdicts import TraceSource, of_source
from tests.importers.trace_files import real

SLEEPER = "Healthy: no straggler found (largest share: forward)"


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (
            "sst_long_a2a_optimizer_2",
            [
                (
                    "forward on rank 2",
                    "_AlltoAllSingle after aten::view, rank 2 in forward: edge, idle",
                    "agrees",
                ),
                (
                    SLEEPER,
                    "_AlltoAllSingleBackward, rank 2 in backward: operator, compute",
                    "operator alone (late_start)",
                ),
            ],
        ),
        (
            "sst_long_a2a_optimizer_4",
            [
                (
                    SLEEPER,
                    "_AlltoAllSingleBackward, rank 2 in backward: operator, compute",
                    "operator alone (late_start)",
                )
            ],
        ),
        (
            "sst_sleep_pl_dense_after_backward_2",
            [
                (
                    "forward on rank 2",
                    "_AlltoAllSingle after aten::view, rank 2 in forward: edge, idle",
                    "agrees",
                )
            ],
        ),
    ],
)
def test_a_rank_that_sleeps_before_exchanges_is_named_where_the_others_wait_on_the_host(
    job: str, expected: list[tuple[str, str, str]]
) -> None:
    """Where they wait on the device alone, the host's stages cannot show it; operators can."""
    rows = of_source(TraceSource(real(f"kineto/torchrec_dlrm/{job}"), "kineto"))

    assert len(rows) == len(expected)
    for row, (verdict, operator, agreement) in zip(rows, expected, strict=True):
        assert row.verdict.startswith(verdict)
        assert row.operator.startswith(operator)
        assert row.agreement == agreement


def test_one_rank_shows_its_times_and_that_nothing_is_compared() -> None:
    (row,) = of_source(
        TraceSource(
            real("kineto/single_rank/resnet50_num_workers_0.worker0.1623143089861.pt.trace.json.gz"), "kineto"
        )
    )

    assert row.verdict == "Single rank: no comparison possible (largest share: data, 40 %)"
    assert row.operator.startswith("No cause can be named: 1 rank with events")
    assert "Ranks cannot be compared: there is only one." in row.unknown


@pytest.mark.parametrize(
    ("path", "source", "mapping", "verdict", "operator", "agreement"),
    [
        (
            "ops/straggler_analysis/trace-SE.parquet",
            "straggler-analysis",
            "",
            "Ranks 1, 3, 5, 7 and 60 more are missing (no straggler found among 64 other ranks)",
            "backward-compute, rank 80 in backward: operator, compute, ",
            "operator alone",
        ),
        (
            "pipeline/primus_pp8",
            "table",
            "primus_pipeline",
            "Pipeline stage 7 bounds the step (rank 7, +10 % vs the mean stage)",
            "No cause can be named: at most 1 of 8 ranks play the same role",
            "both healthy",
        ),
    ],
)
def test_pipelines_are_compared_within_a_stage(
    path: str, source: str, mapping: str, verdict: str, operator: str, agreement: str
) -> None:
    (row,) = of_source(TraceSource(real(path), source, mapping))

    assert row.verdict == verdict
    assert row.operator.startswith(operator)
    assert row.agreement == agreement
    assert "their roles differ" in row.unknown
