"""The DuckDB store: the only SQL. Packets in, idempotently; windows and diagnoses out (docs/store.md)."""

from sfapp.store.ingest import IngestReport, Progress
from sfapp.store.queries import (
    SORTABLE,
    PacketSource,
    QuarantinedFile,
    RunSummary,
    WindowConflict,
    WindowPage,
    WindowQuery,
)
from sfapp.store.samples import SampleQuery
from sfapp.store.store import Store

__all__ = [
    "SORTABLE",
    "IngestReport",
    "PacketSource",
    "Progress",
    "QuarantinedFile",
    "RunSummary",
    "SampleQuery",
    "Store",
    "WindowConflict",
    "WindowPage",
    "WindowQuery",
]
