"""Examine a window's operator events, and describe the findings as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from sfapp.errors import PacketError, WindowError
from sfapp.model import Operators, Window
from sfapp.operators import Agreement, Findings, examine_window, of_ranks
from sfapp.views import format

MAX_EVENTS = 6_000_000
"""Maximum number of events examined at a time; each needs about 600 bytes of memory."""

DOCUMENT_VERSION = 2
"""Version of the stragglers tab's JSON document, incremented when an old reader would misread it."""

Read = Callable[[], Operators | None]
"""Function that reads a window's operator events, or returns None."""

ReportProgress = Callable[[str], object]
"""Function that receives a description of the work in progress."""


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """The findings of a window, or the reason why there are none.

    Attributes:
        key: identifies the inputs.
        findings: None if nothing could be examined.
        notes: why nothing could be examined, and caveats of the findings.
    """

    key: Hashable
    findings: Findings | None
    notes: tuple[str, ...]

    def or_raise(self) -> Findings:
        """Return the findings.

        Raises:
            WindowError: there are none; the message gives the reason.
        """
        if self.findings is None:
            raise WindowError(" ".join(self.notes))
        return self.findings

    @property
    def nbytes(self) -> int:
        """Approximate memory of the findings, in bytes."""
        return 0 if self.findings is None else _nbytes(self.findings)


def examined(
    key: Hashable, read: Read, window: Window, wait_stages: Collection[str], report: ReportProgress
) -> Examined:
    """Examine a window's operator events, or its stages if there are none.

    Blocks for seconds if there are many events.

    Args:
        window: the ranks that were judged.
        wait_stages: the stages in which the verdict measured waits between ranks.
    """
    notes: list[str] = []
    try:
        report("Reading operator events")
        operators = read()
    except PacketError as error:
        notes.append(f"The operator events of this window cannot be read; stages are used instead: {error}")
        operators = None
    if operators is not None:
        operators = of_ranks(operators, window)
        if not len(operators):
            notes.append(f"No operator events for the ranks of {window.group}; stages are used instead.")
            operators = None
    try:
        findings = _found(operators, window, wait_stages, report)
    except WindowError as error:
        return Examined(key, None, (*notes, f"Nothing to examine: {error}."))
    roles = _roles(findings, window)
    if len(roles) > 1:
        notes.append(
            f"These ranks play {len(roles)} roles ({format.listed(roles)}): each is compared with the "
            f"ranks of its "
            "own role."
        )
    return Examined(key, findings, tuple(notes))


def document(found: Examined, agreement: Agreement | None, limit: int) -> dict[str, Any]:
    """Return findings as plain data: the JSON document of the stragglers tab.

    Args:
        agreement: how verdict and findings agree; None without findings.
        limit: maximum number of causes, outliers and collectives in the document.
    """
    head: dict[str, Any] = {"version": DOCUMENT_VERSION, "source": None, "notices": found.notes}
    findings = found.findings
    if findings is None or agreement is None:
        return head
    similarity, outliers, blame = findings.similarity, findings.outliers, findings.blame
    return head | {
        "source": findings.source,
        "note": findings.note,
        "events": len(findings.operators),
        "ranks": findings.operators.ranks,
        "steps": findings.operators.steps,
        "agreement": agreement.kind,
        "reasons": agreement.reasons,
        "stage": agreement.stage,
        "rank": agreement.rank,
        "cause_stage": agreement.cause_stage,
        "first_rank": agreement.first_rank,
        "weight": agreement.weight,
        "similarity": {
            "ranks": similarity.ranks,
            "score": similarity.score_R.tolist(),
            "window_ns": similarity.window_ns,
            "why": similarity.why,
        },
        "causes": [asdict(cause) for cause in blame.causes[:limit]],
        "outliers": {
            "total": len(outliers),
            "unmatched": outliers.unmatched,
            "score": outliers.score,
            "why": outliers.why,
            "rows": [asdict(row) for row in outliers.rows(limit)],
        },
        "collectives": [asdict(each) for each in blame.collectives[:limit]],
        "symptoms": blame.symptoms,
        "unexplained": blame.unexplained,
        "spread_ns": blame.spread_ns,
        "clocks_agree": blame.clocks_agree,
        "notes": blame.notes,
    }


def _found(
    operators: Operators | None, window: Window, wait_stages: Collection[str], report: ReportProgress
) -> Findings:
    """Examine operators, or stages if there are none.

    Raises:
        WindowError: there are too many events, or neither events nor stages can be compared.
    """
    events = math.prod(window.duration_SNR.shape) if operators is None else len(operators)
    if events > MAX_EVENTS:
        raise WindowError(
            f"{events:,} events exceed the limit of {MAX_EVENTS:,}; choose one node or role under Group"
        )
    ranks = len(window.ranks) if operators is None else len(operators.ranks)
    what = "stages" if operators is None else format.counted(events, "event")
    report(f"Examining {what} of {format.counted(ranks, 'rank')}")
    if operators is None and window.reduced is None and ranks < 2:
        raise WindowError(
            "no operator trace for this window, and a single rank has no other rank to compare with"
        )
    return examine_window(operators, window, wait_stages)


def _roles(findings: Findings, window: Window) -> tuple[str, ...]:
    """Return the declared roles of the examined ranks."""
    role = dict(zip(window.ranks.rank, window.ranks.role, strict=True))
    found = {role.get(rank) for rank in findings.operators.ranks}
    return tuple(sorted(each for each in found if each is not None))


def _nbytes(value: Any) -> int:
    """Return the bytes of all arrays in a value, nested ones included."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if not is_dataclass(value):
        return 0
    return sum(_nbytes(getattr(value, item.name)) for item in fields(value))
