"""Judge real traces of other people's jobs with the code of ``sfapp import`` and ``sfapp analyze``.

They are searched for below ``SFAPP_TRACES``; the repository has none of them.
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
    "quiet": "both healthy",
}

NEVER_KNOWN = "Whether this is slower than usual: the run has no healthy window yet."
"""Limitation of a single window, which the page states once."""


@dataclass(frozen=True, slots=True)
class TraceSource:
    """One trace: a folder or file, its format, and the name of an example mapping."""

    path: Path
    format: str
    mapping: str = ""


@dataclass(frozen=True, slots=True)
class TraceVerdict:
    """The results for one window, in words."""

    trace: str
    format: str
    ranks: str
    steps: str
    verdict: str
    operator: str
    agreement: str
    unknown: str


def folder_of_traces() -> Path:
    """Return the folder of other people's traces: ``SFAPP_TRACES``, else one next to the repository."""
    return Path(os.environ.get("SFAPP_TRACES", ROOT.parent / "shared" / "traces"))


def sources(folder: Path) -> list[TraceSource]:
    """Return every trace that exists."""
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
    """Return the results for every trace below a folder, window by window."""
    return [row for source in sources(folder) for row in of_source(source)]


def of_source(source: TraceSource) -> list[TraceVerdict]:
    """Import a trace into packets, read the packets, and return the results."""
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
        rows_found = []
        for diagnosis in diagnose_runs(each.window for each in windows.values()):
            key = (diagnosis.run_id, diagnosis.window)
            operators = read_packet_operators(packet.path for packet in windows[key].packets)
            causes = causes_of(operators, windows[key].window, diagnosis)
            rows_found.append(_row(source, len(windows) > 1, diagnosis, causes, notes[key]))
    return rows_found


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
    found = causes.agreement
    prefix = "from stages: " if causes.source == "stages" else ""
    if found is None or found.cause is None:
        return prefix + causes.headline
    cause = found.cause
    where = "" if found.cause_stage is None else f" in {format.short_stage(found.cause_stage)}"
    late = f"{format.duration(cause.delay_ns / len(cause.steps))} per step"
    after = "" if cause.source is None else f" after {format.clip(cause.source)}"
    what = f"{format.clip(cause.name)}{after}, rank {cause.rank}{where}"
    steps = format.counted(len(cause.steps), "step")
    return f"{prefix}{what}: {cause.kind}, {cause.nature}, {late} in {steps}"


def _agreement(found: Agreement | None) -> str:
    if found is None:
        return "–"
    return KINDS[found.kind] + (f" ({', '.join(found.reasons)})" if found.reasons else "")
