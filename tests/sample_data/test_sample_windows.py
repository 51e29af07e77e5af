"""What was injected into the recorded sample job is what its diagnosis says, window by window."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sfapp.accounting import diagnose_runs
from sfapp.model import Diagnosis
from sfapp.packets import Loaded, read_windows

SAMPLE = Path(__file__).parent.parent.parent / "sample_data"
EXPECTED: dict[str, list[dict[str, Any]]] = json.loads((SAMPLE / "expected.json").read_text())
CASES = [(run, window) for run, windows in EXPECTED.items() for window in windows]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return read_windows([SAMPLE / "packets"])


@pytest.fixture(scope="module")
def diagnosed(loaded: Loaded) -> dict[tuple[str, int], Diagnosis]:
    found = diagnose_runs(item.window for item in loaded.windows)
    return {(diagnosis.run_id, diagnosis.window): diagnosis for diagnosis in found}


@pytest.fixture(scope="module")
def step_aligned(loaded: Loaded) -> dict[tuple[str, int], Diagnosis]:
    """Diagnoses on the paper's frontier, which the expected top stages are of."""
    found = diagnose_runs((item.window for item in loaded.windows), frontier="step")
    return {(diagnosis.run_id, diagnosis.window): diagnosis for diagnosis in found}


@pytest.mark.parametrize(("run", "expected"), CASES, ids=lambda case: str(case)[:60])
def test_the_verdict_is_what_was_injected(
    diagnosed: dict[tuple[str, int], Diagnosis],
    step_aligned: dict[tuple[str, int], Diagnosis],
    run: str,
    expected: dict[str, Any],
) -> None:
    diagnosis, aligned = diagnosed[run, expected["window"]], step_aligned[run, expected["window"]]
    aim, culprit = diagnosis.aim, diagnosis.culprit
    assert aim is not None
    assert culprit is not None
    assert diagnosis.is_healthy == expected.get("quiet", diagnosis.is_healthy)
    if "quiet" not in expected:
        assert not diagnosis.is_healthy or "aim" not in expected
    assert aim.stage == expected.get("aim", aim.stage)
    assert aim.rank == expected.get("rank", aim.rank)
    assert aim.rank_reason == expected.get("rank_reason", aim.rank_reason)
    assert aim.basis == expected.get("basis", aim.basis)
    assert aim.steps == expected.get("steps", aim.steps)
    assert culprit.kind == expected.get("culprit", culprit.kind)
    assert aligned.top_stage == expected.get("top", aligned.top_stage)
    assert diagnosis.is_healthy or diagnosis.top_stage == aim.stage
    assert {expected["reason"]} <= set(diagnosis.all_reasons) if "reason" in expected else True
    assert {expected["label"]} <= set(diagnosis.label_names) if "label" in expected else True
    assert list(diagnosis.missing_ranks) == expected.get("missing_ranks", [])


def test_the_sample_holds_exactly_the_windows_described(diagnosed: dict[tuple[str, int], Diagnosis]) -> None:
    assert set(diagnosed) == {(run, window["window"]) for run, window in CASES}


def test_the_fault_removed_brings_the_step_time_back(diagnosed: dict[tuple[str, int], Diagnosis]) -> None:
    before, during, after = (diagnosed["gpt-small-ddp", window].step_time.mean_ns for window in (12, 13, 14))
    assert (during - after) / (during - before) == pytest.approx(1, abs=0.1)


def test_a_median_dashboard_would_miss_the_periodic_callback(
    diagnosed: dict[tuple[str, int], Diagnosis],
) -> None:
    healthy, periodic = diagnosed["gpt-small-ddp", 5], diagnosed["gpt-small-ddp", 8]
    assert periodic.step_time.p50_ns == pytest.approx(healthy.step_time.p50_ns, rel=0.05)
    assert periodic.step_time.mean_ns > 1.5 * healthy.step_time.mean_ns


def test_one_role_alone_needs_no_role(loaded: Loaded) -> None:
    runs = [item.window for item in loaded.windows if item.window.run_id == "moe-two-roles"]
    dense = diagnose_runs(runs, group="role:dense")[2]
    assert "role_aware_needed" not in dense.label_names
    assert dense.aim is not None
    assert (dense.aim.stage, dense.aim.rank) == ("data.next_wait", 2)


def test_the_damaged_packet_is_quarantined_and_nothing_else(loaded: Loaded) -> None:
    assert [refused.path.parent.name for refused in loaded.quarantined] == ["broken"]
    assert "Parquet" in loaded.quarantined[0].reason


def test_the_sample_stays_small() -> None:
    assert sum(path.stat().st_size for path in (SAMPLE / "packets").rglob("*.parquet")) < 5_000_000


@pytest.mark.torchrun
def test_the_recording_script_records(tmp_path: Path) -> None:
    command = [sys.executable, str(SAMPLE / "record.py"), "--out", str(tmp_path)]
    options = ["--run", "gpt-small-ddp", "--ranks", "2", "--steps", "12", "--windows", "2"]
    subprocess.run([*command, *options], check=True, capture_output=True, timeout=120)
    windows = read_windows([tmp_path / "gpt-small-ddp"]).windows
    assert [(item.window.number, item.window.duration_SNR.shape) for item in windows] == [
        (0, (7, 12, 2)),
        (1, (7, 12, 2)),
    ]
    assert windows[0].window.manifest.gather_ok
