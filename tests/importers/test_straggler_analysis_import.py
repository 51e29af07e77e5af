"""StragglerAnalysis' operation tables: what they show, and the published slowdowns by replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfapp.importers.straggler_analysis import WAIT, _meta
from sfapp.importers.straggler_operations import read_table
from sfapp.importers.straggler_replay import BACKWARD, FORWARD, what_if
from sfapp.model.operators import COLLECTIVE
from tests.importers.trace_files import diagnosed, imported, notes_of, real

FORWARD_STAGE, BACKWARD_STAGE = "model.fwd_loss_cpu_wall", "model.backward_cpu_wall"
SAMPLES = "ops/straggler_analysis"


def a_job(path: Path, heavy: float = 2.0, **damage: Any) -> Path:
    """Two pipeline stages, one micro-batch: forward takes 1 s, ``heavy`` on the last stage; backward 1 s."""
    rows = []
    for step in (5, 6):
        first = [("forward-compute", 0, 1), ("forward-send", 1, 0.1), ("backward-recv", 1.1, heavy + 1.1)]
        first += [("backward-compute", 2.2 + heavy, 1)]
        last = [
            ("forward-recv", 0, 1.1),
            ("forward-compute", 1.1, heavy),
            ("backward-compute", 1.1 + heavy, 1),
        ]
        last += [("backward-send", 2.1 + heavy, 0.1)]
        for stage, operations in enumerate((first, last)):
            end = 3.2 + heavy
            operations += [("gc", end, 0.0), ("layernorm-grads-all-reduce", end, 0.0)]
            operations += [("optimizer-clip-main-grad", end, 0.1), ("optimizer", end + 0.1, 0.2)]
            rows += [
                {
                    "dp_rank": 0, "stage": stage, "rank": stage, "step": step, "optype": kind,
                    "start_ts": float(start), "duration": float(duration), "seq_id": 0,
                    "mb_id": 0 if "compute" in kind else -1,
                }
                for kind, start, duration in operations
            ]  # fmt: skip
    rows[0] |= damage
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_work_and_waits_of_each_stage(tmp_path: Path) -> None:
    (each,) = imported("straggler-analysis", a_job(tmp_path / "trace-J.parquet")).windows

    window = each.window
    found = {
        stage: [round(value / 1e9, 3) for value in plane]
        for stage, plane in zip(window.stages, window.duration_SNR[:, 0].tolist(), strict=True)
    }
    assert (window.run_id, window.ranks.role) == ("J", ("pp0", "pp1"))
    assert found[FORWARD_STAGE] == [1.0, 2.0]
    assert found[WAIT] == [3.2, 1.2]
    assert [sum(values) for values in zip(*found.values(), strict=True)] == pytest.approx([5.5, 5.5])
    assert each.operators is not None
    assert (each.operators.category_E == COLLECTIVE).sum() == 2 * (4 + 2 + 2)


def test_types_of_operations_that_no_row_has_do_not_count(tmp_path: Path) -> None:
    path = a_job(tmp_path / "trace-J.parquet")
    table = pl.read_parquet(path)
    kinds = pl.Enum(["first-op", *table["optype"].unique()])
    plain = read_table(path)
    table.with_columns(pl.col("optype").cast(kinds)).write_parquet(path)

    enumerated = read_table(path)

    assert set(enumerated.optypes) == set(plain.optypes)
    named = [[each.optypes[at] for at in each["optype"]] for each in (plain, enumerated)]
    assert named[0] == named[1]


def test_waits_are_transfers_less_the_transfer_itself(tmp_path: Path) -> None:
    """Stage 0 posts its receive at 1.1 s and the other sends at 4.1 s; stage 1 waits from 0 to 1 s."""
    (each,) = imported("straggler-analysis", a_job(tmp_path / "trace-J.parquet")).windows

    waits = {stage: (wait_NR / 1e9).tolist() for stage, wait_NR in each.window.waits.items()}
    assert list(waits) == [WAIT]
    assert waits[WAIT] == [pytest.approx([3.0, 1.0])] * 2


def test_the_replay_of_a_small_job_matches_a_calculation_by_hand(tmp_path: Path) -> None:
    found = what_if(read_table(a_job(tmp_path / "trace-J.parquet")))

    assert found.replayed_s == pytest.approx(5.5)
    # Typical forward is 1.5 s on both stages: 1.5 + 0.1 + 1.5 + 1 + 0.1 + 1 + 0.1 + 0.2.
    assert found.ideal_s == pytest.approx(5.5)
    assert found.by_stage[1] == pytest.approx(6.0 / 5.5)  # its forward 2 s, the other's 1.5 s
    assert found.by_type[BACKWARD] == pytest.approx(1)


@pytest.mark.parametrize(
    ("damage", "place", "reason"),
    [
        ({"duration": -0.5}, "row 0, column 'duration'", "-0.5 is outside"),
        ({"duration": float("nan")}, "row 0, column 'duration'", "nan is outside"),
        ({"rank": None}, "row 0, column 'rank'", "missing value"),
        ({"stage": -1}, "row 0, column 'stage'", "-1 is outside"),
    ],
)
def test_a_wrong_row_is_refused_with_its_place(
    tmp_path: Path, damage: dict[str, Any], place: str, reason: str
) -> None:
    a_job(tmp_path / "trace-good.parquet")
    path = a_job(tmp_path / "trace-bad.parquet", **damage)

    found = imported("straggler-analysis", tmp_path)

    assert [each.window.run_id for each in found.windows] == ["good"]
    (error,) = found.refused
    assert (error.path, error.place) == (str(path), place)
    assert reason in error.reason


def test_another_table_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")

    assert "no column dp_rank" in imported("straggler-analysis", tmp_path).refused[0].reason


def test_operations_that_are_not_known_leave_the_replay_out(tmp_path: Path) -> None:
    found = imported("straggler-analysis", a_job(tmp_path / "trace-J.parquet", optype="all-to-all"))

    assert len(found.windows) == 1
    assert any("all-to-all" in note.what for note in notes_of(found))
    assert "what_if" not in found.windows[0].window.manifest.extra
    assert not found.windows[0].window.waits


@pytest.mark.parametrize("sample", ["SE", "ST"])
def test_published_slowdowns_are_reproduced(sample: str) -> None:
    folder = real(SAMPLES)
    published = json.loads((folder / f"result-{sample}.json").read_text())

    found = what_if(read_table(folder / f"trace-{sample}.parquet"))

    assert found.slowdown == pytest.approx(published["blocking_slowdown"], rel=1e-6)
    assert found.step_s / found.replayed_s == pytest.approx(published["launch_slowdown"], rel=1e-6)
    for name, by in (("dp_rank", found.by_replica), ("stage", found.by_stage)):
        expected = published[f"blocking_decompose_by_{name}"]
        assert {str(key): value for key, value in by.items()} == pytest.approx(expected, rel=1e-6)
    for kind, value in found.by_type.items():
        # They report sends and receives of a way together.
        if kind in published["blocking_decompose_by_optype"]:
            assert value == pytest.approx(published["blocking_decompose_by_optype"][kind], rel=1e-6)


def test_sequence_imbalance_shows_as_jitter_of_backward_within_a_role(tmp_path: Path) -> None:
    found = imported("straggler-analysis", real(f"{SAMPLES}/trace-SE.parquet"))

    (diagnosis,) = diagnosed(found, tmp_path)

    assert (diagnosis.ranks, diagnosis.steps, len(diagnosis.missing_ranks)) == (64, 43, 64)
    assert not diagnosis.needs_attention
    (within,) = diagnosed(found, tmp_path / "again", group="role:pp0")
    assert not within.needs_attention
    assert (within.findings[0].kind, within.findings[0].stage) == ("jitter", BACKWARD_STAGE)
    assert within.findings[0].effect > 0.2


def test_a_heavy_last_stage_shows_between_roles_and_not_within(tmp_path: Path) -> None:
    found = imported("straggler-analysis", real(f"{SAMPLES}/trace-ST.parquet"))

    (diagnosis,) = diagnosed(found, tmp_path)

    assert not diagnosis.needs_attention
    assert diagnosis.mixes_roles
    excess = diagnosis.telling_excess
    assert max(excess, key=lambda stage: excess[stage]) == FORWARD_STAGE
    window = found.windows[0].window
    forward_R = window.duration_SNR[window.stages.index(FORWARD_STAGE)].sum(axis=0)
    assert {window.ranks.role[at] for at in forward_R.argsort()[-2:].tolist()} == {"pp3"}
    # The stages in the middle call the last collective before the others, and wait for them there.
    clip = "optim.clip_grads"
    wait_NR, clip_NR = window.waits[clip], window.duration_SNR[window.stages.index(clip)]
    assert (wait_NR <= clip_NR).all()
    assert [round(ns / 1e8) for ns in np.median(wait_NR, axis=0)] == [0, 0, 2, 2, 3, 3, 0, 0]
    assert (np.median(clip_NR - wait_NR, axis=0) < 12_000_000).all()
    (within,) = diagnosed(found, tmp_path / "again", group="role:pp3")
    assert within.is_healthy
    assert window.manifest.extra["what_if"]["by_stage"]["3"] == pytest.approx(1.232256, abs=1e-5)
    assert FORWARD in window.manifest.extra["what_if"]["by_type"]


def merged(levels: int) -> str:
    """Return YAML of a few hundred bytes whose merged keys would be 10^levels."""
    lines = ["m0: &m0 {a: 1}"]
    for level in range(1, levels + 1):
        copies = ", ".join([f"*m{level - 1}"] * 10)
        lines.append(f"m{level}: &m{level} {{<<: [{copies}]}}")
    return "\n".join(lines)


@pytest.mark.parametrize("hostile", [merged(9), "a: !!bool maybe", "a: !!timestamp never"])
def test_whole_numbers_of_the_description_are_read_and_nothing_else(tmp_path: Path, hostile: str) -> None:
    path = a_job(tmp_path / "trace-J.parquet")
    path.with_name("meta-J.yaml").write_text(f"dp_size: 2\nname: [1]\n{hostile}\nhuge: {'9' * 5000}\n")
    assert _meta(path) == ({"dp_size": 2}, [])
    (each,) = imported("straggler-analysis", path).windows
    assert each.window.run_id == "J"


def test_the_heavy_last_stage_bounds_the_published_job_and_balance_brings_what_was_published(
    tmp_path: Path,
) -> None:
    trace = real(f"{SAMPLES}/trace-ST.parquet")
    (found,) = diagnosed(imported("straggler-analysis", trace), tmp_path)

    pipeline = found.pipeline
    assert pipeline is not None
    assert (pipeline.bounding, pipeline.schedule, pipeline.micro_steps) == (3, "1f1b", 4)
    assert pipeline.of(3).balance == pytest.approx(0.41, abs=0.02)
    assert pipeline.error == pytest.approx(0.02, abs=0.01)
    assert pipeline.balanced_ns is not None
    assert found.step_time.mean_ns / pipeline.balanced_ns == pytest.approx(1.1787, abs=0.05)  # the publisher
    assert found.layout is not None
    assert found.layout.dimensions == ("dp", "pp")
