"""Store windows and diagnoses derived from packets in DuckDB; the only package with SQL (docs/store.md)."""

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
from sfapp.store.window_queries import LISTED, SORTABLE, WORST_FIRST, WindowCounts, WindowQuery, WindowRows

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
