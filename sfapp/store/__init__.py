"""Store windows and diagnoses derived from packets in DuckDB; the only package with SQL (docs/store.md)."""

from sfapp.store.ingest import IngestProgress, IngestReport
from sfapp.store.queries import (
    PacketSource,
    QuarantinedFile,
    RunSummary,
    WindowConflict,
)
from sfapp.store.samples import SampleQuery
from sfapp.store.store import Store
from sfapp.store.window_queries import SORTABLE, WORST_FIRST, WindowQuery, WindowRows

__all__ = [
    "SORTABLE",
    "WORST_FIRST",
    "IngestProgress",
    "IngestReport",
    "PacketSource",
    "QuarantinedFile",
    "RunSummary",
    "SampleQuery",
    "Store",
    "WindowConflict",
    "WindowQuery",
    "WindowRows",
]
