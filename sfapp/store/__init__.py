"""Store windows and diagnoses derived from packets in DuckDB; the only package with SQL (docs/store.md).

Names are loaded on first use: processes that only read packets for an ingest do without DuckDB.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfapp.store.dataset import ingest_to_dataset
    from sfapp.store.ingest import IngestProgress, IngestReport
    from sfapp.store.queries import (
        PacketSource,
        QuarantinedFile,
        RunSummary,
        WindowConflict,
    )
    from sfapp.store.samples import SampleQuery
    from sfapp.store.store import Store
    from sfapp.store.verdict_writer import DatasetReport
    from sfapp.store.window_queries import (
        LISTED,
        SORTABLE,
        WORST_FIRST,
        WindowCounts,
        WindowQuery,
        WindowRows,
    )

_HOMES = {
    "LISTED": "sfapp.store.window_queries",
    "SORTABLE": "sfapp.store.window_queries",
    "WORST_FIRST": "sfapp.store.window_queries",
    "DatasetReport": "sfapp.store.verdict_writer",
    "IngestProgress": "sfapp.store.ingest",
    "IngestReport": "sfapp.store.ingest",
    "PacketSource": "sfapp.store.queries",
    "QuarantinedFile": "sfapp.store.queries",
    "RunSummary": "sfapp.store.queries",
    "SampleQuery": "sfapp.store.samples",
    "Store": "sfapp.store.store",
    "WindowConflict": "sfapp.store.queries",
    "WindowCounts": "sfapp.store.window_queries",
    "WindowQuery": "sfapp.store.window_queries",
    "WindowRows": "sfapp.store.window_queries",
    "ingest_to_dataset": "sfapp.store.dataset",
}

__all__ = [
    "LISTED",
    "SORTABLE",
    "WORST_FIRST",
    "DatasetReport",
    "IngestProgress",
    "IngestReport",
    "PacketSource",
    "QuarantinedFile",
    "RunSummary",
    "SampleQuery",
    "Store",
    "WindowConflict",
    "WindowCounts",
    "WindowQuery",
    "WindowRows",
    "ingest_to_dataset",
]


def __getattr__(name: str) -> Any:
    """Import a public name on its first use.

    Raises:
        AttributeError: there is no such name.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'sfapp.store' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
