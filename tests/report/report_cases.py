"""Reports to write in any format: of the recorded sample job, and of names that mean harm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from sfapp.accounting import diagnose
from sfapp.incidents import draft_incident, state_from_events
from sfapp.model import Window
from sfapp.model.problems import Problem
from sfapp.model.view import ViewState, WindowKey
from sfapp.packets import read_windows
from sfapp.report import Missing, Remark, Report, document
from sfapp.service.packet_evidence import PacketEvidence
from sfapp.service.verdicts import measures_behind
from sfapp.service.window_evidence import EvidenceFile, WindowEvidence
from tests.builders import CALLBACKS, MS, ddp_job, window_of
from tests.hostile_text import HOSTILE_TEXT, with_hostile_names

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_data" / "packets"
WHEN = datetime(2026, 11, 21, 9, 14, tzinfo=UTC)
HARM = (
    '#import "@preview/x:1.0.0" #panic() $x^2$ *b* _i_ `r` ] [l](javascript:alert(1)) ![p](http://x.y/p.png) '
    "<script>alert(1)</script> <label> @ref \\ https://evil.example | = h"
)


@dataclass(frozen=True)
class GivenEvidence:
    """Evidence source that has these windows as they are, in runs without episodes."""

    evidence: Mapping[WindowKey, WindowEvidence]

    def __call__(self, key: WindowKey, view: ViewState) -> WindowEvidence:
        return self.evidence[key]

    def windows(self, run_id: str) -> Sequence[int]:
        return [key.window for key in self.evidence if key.run_id == run_id]

    def problems(self, key: WindowKey) -> Sequence[Problem]:
        return ()


def evidence_of(window: Window, *packets: EvidenceFile) -> WindowEvidence:
    """Return a window judged by itself, with the files that it is from."""
    diagnosis = diagnose(window)
    return WindowEvidence(window, diagnosis, packets, lambda: measures_behind(window, diagnosis))


@cache
def sick_window() -> Report:
    """One window with all its plots, a note pinned to it, and one that is not there."""
    evidence = PacketEvidence(list(read_windows([SAMPLE]).windows))
    key = WindowKey("gpt-small-ddp", 10)
    book, incident = draft_incident("A slow callback", [(key, ViewState())], WHEN, state_from_events(()))
    made = document(book.incident(incident), evidence, command="sfapp report packets", version="1.2.3")
    note = Remark(1, "It begins here.\nSee the strip.", "gpt-small-ddp / 10 · step 401", "Ada, today", ())
    return replace(made, summary="Two lines\nof summary.", parts=(note, *made.parts, Missing("gone/1: gone")))


def recorded_window(number: int) -> Report:
    """One window of the recorded sample job, without an incident."""
    evidence = PacketEvidence(list(read_windows([SAMPLE]).windows))
    asked = [(WindowKey("gpt-small-ddp", number), ViewState())]
    book, incident = draft_incident("sfapp report", asked, WHEN, state_from_events(()))
    return document(
        book.incident(incident), evidence, command="sfapp report packets", version="1.2.3", opened=False
    )


@cache
def harmful() -> Report:
    """Every text that people or files can write means harm."""
    window = window_of(ddp_job(seed=0), run_id=HARM)
    window = replace(window, ranks=replace(window.ranks, hostname=(HARM,) * 8))
    evidence = evidence_of(window, EvidenceFile(HARM, "ab" * 32))
    key = WindowKey(HARM, window.number)
    book, incident = draft_incident(HARM, [(key, ViewState())], WHEN, state_from_events(()))
    made = document(book.incident(incident), GivenEvidence({key: evidence}), command=HARM, version="1.2.3")
    parts = (*made.parts, Remark(2, HARM, HARM, HARM, (HARM,)), Missing(HARM))
    return replace(made, summary=f"{HARM}\n{HARM}", facts=(("status", HARM),), parts=parts)


@cache
def hostile_names() -> Report:
    """Hostile names of a run, its stages and hosts, and hostile notes."""
    window = with_hostile_names(window_of(ddp_job(seed=0, extra={(CALLBACKS, 3): 60 * MS})))
    key = WindowKey(HOSTILE_TEXT, window.number)
    evidence = evidence_of(window, EvidenceFile(HOSTILE_TEXT, "ab" * 32))
    state, incident = draft_incident(HOSTILE_TEXT, [(key, ViewState())], WHEN, state_from_events(()))
    made = document(
        state.incident(incident), GivenEvidence({key: evidence}), command=HOSTILE_TEXT, version="1.2.3"
    )
    note = Remark(2, HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT, (HOSTILE_TEXT,))
    return replace(
        made,
        summary=HOSTILE_TEXT,
        facts=(("status", HOSTILE_TEXT),),
        parts=(*made.parts, note, Missing(HOSTILE_TEXT)),
    )
