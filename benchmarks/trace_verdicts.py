"""The verdict on real traces of other people's jobs: what ``sfapp import`` and ``sfapp analyze`` say of each.

They are looked for under ``SFAPP_TRACES``; the repository holds none of them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sfapp.accounting import diagnose_runs
from sfapp.importers import ImportNote, ImportOptions, read_mapping, read_traces, write_imported
from sfapp.model import Diagnosis
from sfapp.operators import Agreement
from sfapp.operators.cohorts import MIN_COHORT
from sfapp.packets import read_packet_operators, read_windows
from sfapp.service.causes import Causes, causes_of
from sfapp.views import format
from sfapp.views import text as words

ROOT = Path(__file__).parents[1]

KINDS = {
    "agree": "agrees",
    "differ": "differs",
    "frontier_only": "verdict alone",
    "kair_only": "operator alone",
    "quiet": "both quiet",
}

NEVER_KNOWN = "Whether this is slower than usual: the run has no healthy window yet."
"""Of a single window; the page says it once."""


@dataclass(frozen=True, slots=True)
class TraceSource:
    """One trace: a folder or file, and how it is read; ``mapping`` is one of the examples."""

    path: Path
    format: str
    mapping: str = ""


@dataclass(frozen=True, slots=True)
class TraceVerdict:
    """What is said of one window, in words."""

    trace: str
    format: str
    ranks: str
    steps: str
    verdict: str
    operator: str
    agreement: str
    unknown: str


def folder_of_traces() -> Path:
    """Where other people's traces lie: ``SFAPP_TRACES``, else beside the repository."""
    return Path(os.environ.get("SFAPP_TRACES", ROOT.parent / "shared" / "traces"))


def sources(folder: Path) -> list[TraceSource]:
    """Every trace that is there."""
    found = [TraceSource(path, "kineto") for path in _inside(folder / "kineto" / "torchrec_dlrm")]
    found += [TraceSource(path, "kineto") for path in _inside(folder / "kineto" / "single_rank")]
    found += [TraceSource(path, "nsys") for path in _inside(folder / "nsys")]
    found += [
        TraceSource(path, "straggler-analysis")
        for path in _inside(folder / "ops" / "straggler_analysis")
        if path.name.startswith("trace-")
    ]
    found += [TraceSource(path, "table", "primus_pipeline") for path in _inside(folder / "pipeline")]
    return found + [TraceSource(path, "table", "dlio") for path in _inside(folder / "telemetry")]


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def rows(folder: Path) -> list[TraceVerdict]:
    """What is said of every trace below a folder, window by window."""
    return [row for source in sources(folder) for row in of_source(source)]


def of_source(source: TraceSource) -> list[TraceVerdict]:
    """Import a trace into packets, read those again, and say what they show."""
    mapping = (
        read_mapping(ROOT / "examples" / "mappings" / f"{source.mapping}.toml") if source.mapping else None
    )
    found = read_traces(
        source.format, [source.path], ImportOptions() if mapping is None else ImportOptions(mapping)
    )
    notes = {(each.window.run_id, each.window.number): each.notes for each in found.windows}
    with tempfile.TemporaryDirectory() as packets:
        write_imported(found, Path(packets))
        windows = {
            (each.window.run_id, each.window.number): each for each in read_windows([Path(packets)]).windows
        }
        said = []
        for diagnosis in diagnose_runs(each.window for each in windows.values()):
            key = (diagnosis.run_id, diagnosis.window)
            operators = read_packet_operators(packet.path for packet in windows[key].packets)
            causes = causes_of(operators, windows[key].window, diagnosis)
            said.append(_row(source, len(windows) > 1, diagnosis, causes, notes[key]))
    return said


def _row(
    source: TraceSource, one_of_many: bool, diagnosis: Diagnosis, causes: Causes, notes: Sequence[ImportNote]
) -> TraceVerdict:
    name = source.path.name.split(".")[0]
    expected = diagnosis.ranks + len(diagnosis.missing_ranks)
    unknown = [f"{note.what}." for note in notes if note.kind in ("missing", "guessed")]
    unknown += [sentence for sentence in words.unknown(diagnosis) if sentence != NEVER_KNOWN]
    return TraceVerdict(
        trace=f"{diagnosis.run_id}/{diagnosis.window}" if one_of_many else name,
        format=source.format,
        ranks=f"{diagnosis.ranks} of {expected}",
        steps=str(diagnosis.steps),
        verdict=words.summary(diagnosis),
        operator=_operator(causes),
        agreement=_agreement(causes.agreement) if diagnosis.ranks >= MIN_COHORT else "–",
        unknown=" ".join(f"{text[:1].upper()}{text[1:]}" for text in dict.fromkeys(unknown)),
    )


def _operator(causes: Causes) -> str:
    said = causes.agreement
    told = "from stages: " if causes.source == "stages" else ""
    if said is None or said.cause is None:
        return told + causes.headline
    cause = said.cause
    where = "" if said.cause_stage is None else f" in {format.short_stage(said.cause_stage)}"
    late = f"{format.duration(cause.delay_ns / len(cause.steps))} a step"
    after = "" if cause.source is None else f" after {format.clip(cause.source)}"
    what = f"{format.clip(cause.name)}{after}, rank {cause.rank}{where}"
    return f"{told}{what}: {cause.kind}, {cause.nature}, {late} in {format.counted(len(cause.steps), 'step')}"


def _agreement(found: Agreement | None) -> str:
    if found is None:
        return "–"
    return KINDS[found.kind] + (f" ({', '.join(found.reasons)})" if found.reasons else "")
