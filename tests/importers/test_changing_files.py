"""A file that another process writes to while it is read is refused: what was read may be mixed."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import pytest

from sfapp.errors import TraceError
from sfapp.importers import NO_MAPPING
from sfapp.importers.column_reader import batches
from sfapp.importers.kineto.event_reader import EventFile
from sfapp.importers.source_files import open_source
from sfapp.importers.sqlite_reader import open_database
from tests.importers.kineto_events import event, trace
from tests.importers.test_traceml_import import events, telemetry

CHANGED = "changed while it was read"


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\n")


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_file_that_grows_is_refused_and_one_that_was_read_before_is_not(
    tmp_path: Path, is_packed: bool
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(gzip.compress(b"step") if is_packed else b"step")

    with open_source(path) as file:
        assert file.read() == b"step"

    def read() -> None:
        with open_source(path) as file:
            file.read()
            grow(path)

    with pytest.raises(OSError, match=CHANGED):
        read()


def test_a_table_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("step,rank,stage,duration_ms\n0,0,load,125\n0,1,load,125\n")

    def read() -> None:
        for _ in batches(path, NO_MAPPING):
            path.write_text("step,rank,stage,duration_ms\n0,0,load,1")

    with pytest.raises(TraceError, match=CHANGED):
        read()


def test_a_trace_that_grows_is_refused(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json", [event("ProfilerStep#0", 0, 9)])

    def read() -> None:
        for _ in EventFile(path).batches():
            grow(path)

    with pytest.raises(TraceError, match=CHANGED):
        read()


def test_a_database_that_is_written_to_is_refused(tmp_path: Path) -> None:
    path = telemetry(tmp_path, [(1, 0, events(1, 1, 1, 1))])

    def read() -> None:
        with open_database(path):
            with sqlite3.connect(path) as writer:
                writer.execute("CREATE TABLE more (id)")
            writer.close()

    with pytest.raises(TraceError, match=CHANGED):
        read()


def test_a_database_with_a_journal_is_read_as_it_was_when_opened(tmp_path: Path) -> None:
    path = telemetry(tmp_path, [(1, 0, events(1, 1, 1, 1))])
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE more (id)")
    writer.commit()

    with open_database(path) as found:
        writer.execute("CREATE TABLE others (id)")
        writer.commit()
        writer.execute("PRAGMA wal_checkpoint")
        assert "more" in found.columns
    writer.close()
