"""What each target knows is kept in one file."""

from __future__ import annotations

from pathlib import Path

from sfapp.alerts.alert_state import AlertState
from sfapp.alerts.changes import KnownProblem

TARGET = "webhook+http://127.0.0.1/hook"


def test_what_a_target_knows_of_one_run_is_not_used_for_another(tmp_path: Path) -> None:
    path, runs = tmp_path / "state.json", ("a", "b", None)
    known = {run: {"id": KnownProblem(run_id=run or "c", title="late", is_ongoing=True)} for run in runs}
    for run in runs:
        with AlertState.open(path, run) as state:
            assert state.known_by(TARGET) is None
            state.keep(TARGET, known[run])
    for run in runs:
        with AlertState.open(path, run) as state:
            assert state.known_by(TARGET) == known[run]
