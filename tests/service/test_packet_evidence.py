"""Windows judged from files for a report say what the other surfaces say of them in their run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfapp.accounting import diagnose_runs, judge
from sfapp.model.view import ViewState, WindowKey
from sfapp.packets import packet_path, read_windows, write_packet
from sfapp.service.judging import WindowJudge
from sfapp.service.onsets import EpisodeLocator
from sfapp.service.packet_analysis import AnalysisRequest, analyse_packets
from sfapp.service.packet_evidence import PacketEvidence
from sfapp.service.problems import StoredProblems
from sfapp.service.pseudonyms import Pseudonyms
from sfapp.store import Store
from sfapp.store.reference_choices import ReferenceChoices
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


@pytest.mark.parametrize("view", [ViewState(), ViewState(group="node:0"), ViewState(baseline="reference")])
def test_a_reference_chosen_in_the_app_counts_without_its_store(
    evidence: PacketEvidence, tmp_path: Path, view: ViewState
) -> None:
    keys = [WindowKey(run, number) for run in ("other", "run") for number in evidence.windows(run)]
    with Store.open([tmp_path]) as store:
        store.ingest()
        store.set_reference("run", 5)
        of_store = WindowJudge(lambda run: store, measures_reference=True)
        judged = [of_store.judge(of_store.source(key), view).diagnosis for key in keys]
        problems = StoredProblems(lambda run: store, EpisodeLocator(of_store)).of_run("run")
    chosen = ReferenceChoices.next_to(tmp_path).windows
    found = PacketEvidence(list(read_windows([tmp_path]).windows), chosen=chosen)
    assert [found(key, view).diagnosis for key in keys] == judged
    assert {one.reference and one.reference.windows for one in judged if one.run_id == "run"} == {(5,)}
    analysis = analyse_packets([tmp_path], AnalysisRequest(view))
    assert analysis.diagnoses == judged
    if view == ViewState():
        assert [one for one in analysis.problems if one.run_id == "run"] == problems


def test_a_chosen_reference_counts_under_pseudonyms(evidence: PacketEvidence, tmp_path: Path) -> None:
    loaded = list(read_windows([tmp_path]).windows)
    names = Pseudonyms.of([found.window for found in loaded])
    found = PacketEvidence(loaded, names, {"run": 5})(names.key(WindowKey("run", 4)), ViewState())
    assert found.diagnosis.reference is not None
    assert found.diagnosis.reference.windows == (5,)
