"""What operators say of a window, in the report on it."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest

from tests.builders import ddp_job, window_of

sys.path.insert(0, str(Path(__file__).parents[1] / "views"))

from sfapp.errors import WindowError
from sfapp.incidents import IncidentEditor, IncidentLog, draft_incident, state_from_events
from sfapp.model.view import ViewState, WindowKey
from sfapp.packets import operators_path, packet_path, read_windows, write_operators, write_packet
from sfapp.report import CollectedPlot, Missing, Report, Section, document, render
from sfapp.report.plots import report_names
from sfapp.service.packet_evidence import PacketEvidence
from sfapp.service.pseudonyms import Pseudonyms
from sfapp.service.window_evidence import EvidenceSource
from sfapp.views.plot_registry import FindingsInput, WindowInput
from tests.report.report_cases import GivenEvidence, evidence_of
from tests.views import simulated_findings as found_in

WINDOW_PLOTS = tuple(
    name for name in report_names(WindowInput) if name not in ("parallel_layout", "pipeline")
)
"""Those of a window without a layout."""

OPERATOR_PLOTS = report_names(FindingsInput)

WHEN = datetime(2026, 11, 21, 9, 14, tzinfo=UTC)
KEY = WindowKey("job", 4)


@pytest.fixture
def packets(tmp_path: Path) -> Path:
    """One window with operator events next to its packet."""
    window = window_of(ddp_job(seed=0), run_id=KEY.run_id, window=KEY.window)
    root = tmp_path / "packets"
    path = packet_path(root, KEY.run_id, KEY.window)
    path.parent.mkdir(parents=True)
    write_packet(window, path)
    write_operators(
        found_in.planted("input"), KEY.run_id, KEY.window, operators_path(root, KEY.run_id, KEY.window)
    )
    return root


def report_of(look: EvidenceSource) -> Report:
    book, incident = draft_incident("Stragglers", [(KEY, ViewState())], WHEN, state_from_events(()))
    return document(book.incident(incident), look, command="sfapp report", version="1")


def test_a_window_with_operator_events_is_reported_with_their_findings(packets: Path) -> None:
    (section,) = report_of(PacketEvidence(read_windows([packets]).windows)).of(Section)
    assert [plot.name for plot in section.plots] == [*WINDOW_PLOTS, *OPERATOR_PLOTS]
    path = next(plot for plot in section.plots if plot.name == "blame_path")
    assert "next_batch" in path.light["layout"]["meta"]["alt"]
    assert path.hint


def test_a_window_without_them_is_reported_as_before(packets: Path) -> None:
    operators_path(packets, KEY.run_id, KEY.window).unlink()
    (section,) = report_of(PacketEvidence(read_windows([packets]).windows)).of(Section)
    assert [plot.name for plot in section.plots] == list(WINDOW_PLOTS)


@pytest.mark.parametrize("name", ["report.html", "report.md", "report.pdf", "report.ipynb", "report.json"])
def test_every_format_can_show_it(packets: Path, name: str) -> None:
    book, incident = draft_incident("Stragglers", [(KEY, ViewState())], WHEN, state_from_events(()))
    look = PacketEvidence(read_windows([packets]).windows)
    made = document(book.incident(incident), look, command="sfapp report", version="1")
    files = render(name, made, book, incident)
    assert files
    assert sum(map(len, files.values())) < 1_000_000


def test_a_collected_plot_of_operators_is_shown_as_it_was_looked_at(packets: Path) -> None:
    log = IncidentLog.for_packets(packets)
    ada = IncidentEditor(log, "Ada")
    incident = ada.open_incident("Late batch", severity="high", summary="")
    query = ViewState(step=1, ranks=(1, 5)).query
    ada.add_plot(log.state().incident(incident), KEY, "operator_timeline", query)
    look = PacketEvidence(read_windows([packets]).windows)
    made = document(log.state().incident(incident), look, command="sfapp report", version="1")
    (shown,) = made.of(CollectedPlot)
    assert shown.plot.name == "operator_timeline"
    assert shown.seen == "step 1 · ranks 1, 5"
    assert "rank 5" in shown.plot.light["layout"]["annotations"][0]["text"]
    # And a notebook draws it again from the packets
    (notebook,) = render("report.ipynb", made, log.state(), incident).values()
    assert ".plot('operator_timeline', step=1, ranks=(1, 5))" in notebook.decode()


def test_the_reason_replaces_an_impossible_examination() -> None:
    def refuse() -> NoReturn:
        raise WindowError("too many events")

    window = window_of(ddp_job(seed=0), run_id=KEY.run_id, window=KEY.window)
    evidence = replace(evidence_of(window), findings=refuse, has_operators=True)
    made = report_of(GivenEvidence({KEY: evidence}))
    assert [part.reason for part in made.of(Missing)] == ["job/4: too many events"]
    assert len(made.of(Section)) == 1


def test_with_many_ranks_the_first_window_is_reported_in_full_and_the_rest_refer_to_it() -> None:
    window = window_of(ddp_job(ranks=40, steps=10, seed=0), run_id=KEY.run_id, window=KEY.window)
    findings = found_in.found("input")
    evidence = replace(evidence_of(window), findings=lambda: findings, has_operators=True)
    keys = [WindowKey("job", number) for number in (4, 5)]
    book, incident = draft_incident("Many", [(key, ViewState()) for key in keys], WHEN, state_from_events(()))
    made = document(
        book.incident(incident), GivenEvidence(dict.fromkeys(keys, evidence)), command="", version="1"
    )
    first, second = made.of(Section)
    assert len(first.plots) == len(WINDOW_PLOTS) + len(OPERATOR_PLOTS)
    assert len(second.plots) == len(WINDOW_PLOTS)
    (missing,) = made.of(Missing)
    assert missing.reason.startswith("job/5: its operators are left out")


def test_redacted_windows_still_have_their_operators(packets: Path) -> None:
    loaded = read_windows([packets]).windows
    names = Pseudonyms.of([found.window for found in loaded], state_from_events(()))
    look = PacketEvidence(loaded, names)
    hidden = names.key(KEY)
    book, incident = draft_incident("Hidden", [(hidden, ViewState())], WHEN, state_from_events(()))
    made = document(book.incident(incident), look, command="sfapp report", version="1")
    (section,) = made.of(Section)
    assert section.plots[-1].name == "operator_timeline"
    assert not re.search(r"\bjob\b", str(replace(section, plots=())))
