"""Activity of the thread that keeps a store up to date."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from sfapp.store import IngestProgress


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """Activity of the store's thread.

    Attributes:
        kind: ``reading`` (first ingest), ``live`` (watching), ``stopped`` (cancelled), ``failed``.
        progress: of the first ingest; None before its first report.
        newest: when the newest packet was written, UTC.
        message: why it failed; while it is live, which of several folders cannot be watched.
        recorded: end of the last recorded window, UTC, by the writing rank's clock.
    """

    kind: Literal["reading", "live", "stopped", "failed"]
    progress: IngestProgress | None = None
    newest: datetime | None = None
    message: str = ""
    recorded: datetime | None = None

    @property
    def age_seconds(self) -> float | None:
        """Return the age of the newest packet."""
        return _age_seconds(self.newest)

    @property
    def recorded_seconds(self) -> float | None:
        """Return how long ago the newest window ended; a copied file may be newer than its window."""
        return _age_seconds(self.recorded or self.newest)


def _age_seconds(moment: datetime | None) -> float | None:
    return None if moment is None else max(0.0, (datetime.now(UTC) - moment).total_seconds())
