"""Windows judged from files for a report say what the other surfaces say of them in their run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfapp.accounting import diagnose_runs, judge
from sfapp.model.view import ViewState, WindowKey
from sfapp.packets import packet_path, read_windows, write_packet
from sfapp.service.packet_evidence import PacketEvidence
from tests.builders import lasting_fault

WINDOWS = lasting_fault(ranks=4)
OTHERS = lasting_fault(ranks=4, seed=7, run_id="other")


@pytest.fixture
def evidence(tmp_path: Path) -> PacketEvidence:
    """Two runs with a fault that lasts: their later windows do not measure themselves where ranks wait."""
    for window in (*WINDOWS, *OTHERS):
        path = packet_path(tmp_path, window.run_id, window.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_packet(window, path)
    return PacketEvidence(list(read_windows([tmp_path]).windows))


@pytest.mark.parametrize("group", ["all", "node:0"])
def test_a_window_is_judged_and_drawn_among_those_of_its_run(evidence: PacketEvidence, group: str) -> None:
    from_run = [one for one in diagnose_runs(WINDOWS, group=group) if one.waits_from == "run"]
    assert from_run
    for expected in from_run:
        found = evidence(WindowKey("run", expected.window), ViewState(group=group))
        assert found.diagnosis == expected
        # And the measures that are drawn lead to the same verdict
        assert judge(found.measures(), reference=expected.reference) == expected


def test_a_reference_in_another_run_is_aligned_in_that_run(evidence: PacketEvidence) -> None:
    view = ViewState(reference=WindowKey("run", 5))
    from_run = evidence(WindowKey("other", 5), view).diagnosis
    assert from_run in evidence.diagnoses(view)
    assert from_run.reference is not None
    assert from_run.reference == diagnose_runs(WINDOWS, reference=("run", 5))[0].reference
