"""What KAIR says of a window, and what keeps it from saying more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from sfapp.errors import PacketError, WindowError
from sfapp.model import Operators, Window
from sfapp.operators import Agreement, Findings, examine_window, of_ranks
from sfapp.views import format

MAX_EVENTS = 6_000_000
"""More events than this are not examined at a time: one takes some 600 bytes while it is examined."""

DOCUMENT_VERSION = 1
"""Of what the twin of the stragglers tab answers; grows where an old reader would misunderstand."""

Read = Callable[[], Operators | None]
"""Reads a window's operator events; None where there are none."""

Tell = Callable[[str], object]
"""Is told what is being done, in words."""


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """What came of a window's ranks.

    Attributes:
        key: what it was worked out from.
        findings: None where there is nothing that could be examined.
        told: what stood in the way, and what to mind when reading the findings.
    """

    key: Hashable
    findings: Findings | None
    told: tuple[str, ...]

    def or_raise(self) -> Findings:
        """The findings.

        Raises:
            WindowError: there are none; the message says what stood in the way.
        """
        if self.findings is None:
            raise WindowError(" ".join(self.told))
        return self.findings

    @property
    def nbytes(self) -> int:
        """Memory that it takes, near enough."""
        return 0 if self.findings is None else _nbytes(self.findings)


def examined(key: Hashable, read: Read, window: Window, wait_stages: Collection[str], tell: Tell) -> Examined:
    """Examine a window's operator events, or its stages where there are none. Blocking: seconds where events
    are many.

    Args:
        window: the ranks that were judged.
        wait_stages: the stages in which the verdict saw ranks wait for each other.
    """
    told: list[str] = []
    try:
        tell("Reading operator events")
        operators = read()
    except PacketError as error:
        told.append(f"Operator events beside the packet cannot be read, so stages stand in: {error}")
        operators = None
    if operators is not None:
        operators = of_ranks(operators, window)
        if not len(operators):
            told.append(f"The operator events beside the packet are of no rank in {window.group}.")
            operators = None
    try:
        findings = _found(operators, window, wait_stages, tell)
    except WindowError as error:
        return Examined(key, None, (*told, f"Nothing can be examined here: {error}."))
    roles = _roles(findings, window)
    if len(roles) > 1:
        told.append(
            f"These ranks play {len(roles)} roles ({format.listed(roles)}) and do different work: each is "
            "compared with those of its own role."
        )
    return Examined(key, findings, tuple(told))


def document(found: Examined, said: Agreement | None, limit: int) -> dict[str, Any]:
    """Findings as plain data: what the tab's JSON twin answers.

    Args:
        said: what the verdict and the findings say of each other; None without findings.
        limit: most causes, outliers and collectives that are listed.
    """
    head: dict[str, Any] = {"version": DOCUMENT_VERSION, "source": None, "told": found.told}
    findings = found.findings
    if findings is None or said is None:
        return head
    rhythm, outliers, blame = findings.similarity, findings.outliers, findings.blame
    return head | {
        "source": findings.source,
        "note": findings.note,
        "events": len(findings.operators),
        "ranks": findings.operators.ranks,
        "steps": findings.operators.steps,
        "agreement": said.kind,
        "reasons": said.reasons,
        "stage": said.stage,
        "rank": said.rank,
        "cause_stage": said.cause_stage,
        "first_rank": said.first_rank,
        "weight": said.weight,
        "rhythm": {
            "ranks": rhythm.ranks,
            "score": rhythm.score_R.tolist(),
            "window_ns": rhythm.window_ns,
            "why": rhythm.why,
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


def _found(operators: Operators | None, window: Window, wait_stages: Collection[str], tell: Tell) -> Findings:
    """
    Raises:
        WindowError: there are too many events, or neither these nor the stages can be compared.
    """
    events = window.duration_SNR.numel() if operators is None else len(operators)
    if events > MAX_EVENTS:
        raise WindowError(
            f"{events:,} events are more than the {MAX_EVENTS:,} that are examined at a time; pick one node "
            "or role under Group"
        )
    ranks = len(window.ranks) if operators is None else len(operators.ranks)
    what = "stages" if operators is None else format.counted(events, "event")
    tell(f"Examining {what} of {format.counted(ranks, 'rank')}: who is late, in what, and why")
    if operators is None and window.reduced is None and ranks < 2:
        raise WindowError(
            "no operator events lie beside the packet, and the stages of one rank compare with nothing"
        )
    return examine_window(operators, window, wait_stages)


def _roles(findings: Findings, window: Window) -> tuple[str, ...]:
    """The declared roles of the ranks that were examined."""
    role = dict(zip(window.ranks.rank, window.ranks.role, strict=True))
    found = {role.get(rank) for rank in findings.operators.ranks}
    return tuple(sorted(each for each in found if each is not None))


def _nbytes(value: Any) -> int:
    """The arrays that a value holds, however deep."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if not is_dataclass(value):
        return 0
    return sum(_nbytes(getattr(value, item.name)) for item in fields(value))
