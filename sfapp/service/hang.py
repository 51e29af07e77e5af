"""Find the ranks that block a stalled job from its Flight Recorder dumps (docs/hangs.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfapp.importers import ImportNote, ImportOptions
from sfapp.importers.recorded_calls import read_calls
from sfapp.operators.hang import Hang, HangEvidence, HangSuspect, find_hang
from sfapp.operators.hang_waits import Wait
from sfapp.packets.stack_files import asked_ranks, newest_dumps
from sfapp.views.text.hang import evidence_words, hang_headline

MOST_DETAILED = 16
"""Number of suspects whose evidence the object of ``--json`` has: where most ranks have no dump, each
of them would repeat the ranks of the same groups."""


@dataclass(frozen=True, slots=True)
class HangAnalysis:
    """What the dumps of one stalled job show.

    Attributes:
        found: the ranks that block it. notes: on files that were left out. files: the dumps that were read.
    """

    found: Hang
    notes: tuple[ImportNote, ...]
    files: tuple[Path, ...]

    def document(self) -> dict[str, Any]:
        """Return the object of ``sfapp hang --json``."""
        return _document(self.found, self.notes, self.files)


def analyze_dumps(
    paths: Sequence[Path], progress: Callable[[Path, int, int], None] | None = None
) -> HangAnalysis:
    """Find the ranks that block a stalled job.

    Args:
        paths: dumps of one job, or folders of them; a packet folder stands for the dumps that came with the
            newest stacks.
        progress: called with each file, its position and the number of files.

    Raises:
        TraceError: no file is a dump, or two files are dumps of one rank.
    """
    dumps = [(newest_dumps(path) or path) if path.is_dir() else path for path in paths]
    asked = [rank for path in dumps for rank in asked_ranks(path)]
    job, notes, files = read_calls(dumps, ImportOptions(progress=progress), asked)
    return HangAnalysis(find_hang(job), notes, files)


def _document(found: Hang, notes: Sequence[ImportNote], files: Sequence[Path]) -> dict[str, Any]:
    return {
        "headline": hang_headline(found),
        "suspects": [_suspect(each, at < MOST_DETAILED) for at, each in enumerate(found.suspects)],
        "groups": [_wait(each) for each in found.waits],
        "lags": [
            {
                "rank": lag.rank,
                "group": lag.group.name,
                "description": lag.group.description,
                "call": lag.call,
                "sequence": lag.sequence,
                "completed_on": lag.completed_on,
            }
            for lag in found.lags
        ],
        "ranks_with_dump": found.ranks_with_dump,
        "ranks_without_entries": found.ranks_without_entries,
        "ranks_without_dump": found.ranks_without_dump,
        "files": [str(path) for path in files],
        "notes": [{"kind": note.kind, "what": note.what, "where": note.where} for note in notes],
    }


def _suspect(suspect: HangSuspect, is_detailed: bool) -> dict[str, Any]:
    # Of the reasons for a wait, the rank is known to be held; that is not looked up among thousands.
    waits = [
        each.wait
        for each in suspect.evidence
        if each.wait and (each.kind == each.wait.reason or suspect.rank in each.wait.held_by)
    ]
    return {
        "rank": suspect.rank,
        "certainty": suspect.certainty,
        "waiting": suspect.waiting,
        "groups": list(dict.fromkeys(wait.group.name for wait in waits)),
        "evidence": [_evidence(each) for each in suspect.evidence] if is_detailed else [],
    }


def _evidence(evidence: HangEvidence) -> dict[str, Any]:
    shown: dict[str, Any] = {"kind": evidence.kind, "text": evidence_words(evidence)}
    if evidence.wait is not None:
        shown |= _wait(evidence.wait) | {"last_called": evidence.last_called}
    return shown


def _wait(wait: Wait) -> dict[str, Any]:
    return {
        "group": wait.group.name,
        "description": wait.group.description,
        "ranks": wait.group.ranks,
        "reason": wait.reason,
        "call": wait.call,
        "sequence": wait.sequence,
        "waiting": wait.waiting,
        "held_by": wait.held_by,
        "other_call": wait.other_call or None,
    }
