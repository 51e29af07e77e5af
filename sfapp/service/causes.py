"""Find the first cause in the operator events next to packets, and whether it confirms the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sfapp.errors import PacketError
from sfapp.model import Diagnosis, Operators, RankTable, Window
from sfapp.packets import Loaded, Quarantined, read_packet_operators
from sfapp.packets.paths import with_operators
from sfapp.storage import path_in, storage_of

if TYPE_CHECKING:
    from sfapp.operators import Agreement

CAUSE_COLUMNS = (
    *("cause_kind", "cause_operator", "cause_rank", "cause_hostname"),
    *("cause_stage", "cause_nature", "cause_delay_ns", "agreement"),
)


@dataclass(frozen=True, slots=True)
class Causes:
    """Result of the operator analysis of one window.

    Attributes:
        source: ``operators``, or ``stages`` if the diagnosed ranks have no events; None as below.
        agreement: comparison of KAIR's first cause with the verdict; None if the events could not be
            examined.
        headline: the cause in words, or why there is none.
        sentences: where the two agree or differ, and why.
        notes: limitations of the events.
        ranks: the window's ranks.
    """

    source: str | None
    agreement: Agreement | None
    headline: str
    sentences: tuple[str, ...]
    notes: tuple[str, ...]
    ranks: RankTable

    def document(self) -> dict[str, Any]:
        """Return the object under ``kair`` of a window's JSON."""
        found = self.agreement
        document: dict[str, Any] = {"source": self.source, "cause": None, "agreement": None}
        if found is not None:
            document |= {"cause": self._cause(found), "agreement": found.kind}
            document |= {"reasons": found.reasons, "first_rank": found.first_rank}
        return document | {"notes": self.notes or (self.headline,)}

    def _cause(self, found: Agreement) -> dict[str, Any] | None:
        if found.cause is None:
            return None
        cause = {key: value for key, value in asdict(found.cause).items() if key not in ("event", "path")}
        where = {"hostname": self._host(found.cause.rank), "stage": found.cause_stage}
        return cause | where | {"weight": found.weight}

    def row(self) -> dict[str, Any]:
        """Return the columns ``CAUSE_COLUMNS`` of a window's CSV row."""
        found = self.agreement
        if found is None or found.cause is None:
            return dict.fromkeys(CAUSE_COLUMNS) | {"agreement": found and found.kind}
        cause = found.cause
        values = (cause.kind, cause.name, cause.rank, self._host(cause.rank), found.cause_stage)
        return dict(
            zip(CAUSE_COLUMNS, (*values, cause.nature, round(cause.delay_ns), found.kind), strict=True)
        )

    def _host(self, rank: int) -> str | None:
        ranks = self.ranks
        return ranks.hostname[ranks.rank.index(rank)] if rank in ranks.rank else None


def causes(
    loaded: Loaded, diagnoses: Sequence[Diagnosis]
) -> tuple[dict[tuple[str, int], Causes], list[tuple[str, Quarantined]]]:
    """Analyse the operator events of every window that has any.

    Returns:
        The causes by run and window number, and the rejected files, whose windows have no causes, each with
        its run.
    """
    having = set(with_operators(packet.path for found in loaded.windows for packet in found.packets))
    windows = {(found.window.run_id, found.window.number): found for found in loaded.windows}
    seen: dict[tuple[str, int], Causes] = {}
    refused = []
    for diagnosis in diagnoses:
        key = (diagnosis.run_id, diagnosis.window)
        paths = [packet.path for packet in windows[key].packets]
        if having.isdisjoint(paths):
            continue
        try:
            operators = read_packet_operators(paths)
        except PacketError as error:
            path = path_in(paths, error.path) if error.path else paths[0]
            found = storage_of(path).found(path)
            size = found.stamp.size if found else 0
            refused.append((diagnosis.run_id, Quarantined(path, size, "", error.fault)))
            continue
        seen[key] = causes_of(operators, windows[key].window.of_group(diagnosis.group), diagnosis)
    return seen, refused


def causes_of(operators: Operators | None, window: Window, diagnosis: Diagnosis) -> Causes:
    """Analyse the operator events of a window, or its stages if there are none.

    Args:
        window: the ranks that were judged.
    """
    # Here, because most windows have no operator events and these modules take a while to load.
    from sfapp.operators import agreement
    from sfapp.views import text as words
    from sfapp.views.operator_findings import examined

    found = examined(None, lambda: operators, window, diagnosis.wait_stages, lambda _: None)
    if found.findings is None:
        return Causes(None, None, " ".join(found.notes), (), (), window.ranks)
    found_agreement = agreement(diagnosis, found.findings, window)
    sentences = (
        () if found_agreement.kind == "quiet" else words.agreement_sentences(found_agreement, diagnosis)
    )
    return Causes(
        source=found.findings.source,
        agreement=found_agreement,
        headline=words.stragglers_headline(found.findings, found_agreement, window.ranks, diagnosis.pipeline),
        sentences=(*sentences, *found.notes),
        notes=(*found.notes, *words.findings_notes(found.findings)),
        ranks=window.ranks,
    )
