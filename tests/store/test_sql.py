"""The closed store is an ordinary DuckDB file, and docs/store.md says what is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from sfapp.store import Store
from sfapp.store.schema import CELLS, SCHEMA_VERSION, TABLES
from tests.builders import DATA, window_of
from tests.store.jobs import RANKS, SLOW, STEPS, put, put_part, put_run, window

DOCUMENT = Path(__file__).parents[2] / "docs" / "store.md"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """A store that was filled and closed, opened as an operator would with DuckDB alone."""
    root = tmp_path_factory.mktemp("it's [odd]") / "pack*ets"
    put_run(root)
    put(root, window_of([[[5, 6]], [[7, 8]]], stages=("load", 'it\'s "it"'), run_id="k=v"))
    put(root, window("other"), root / "copy" / "a=b.parquet")
    put(root, window("other"), root / "copy" / "copy.parquet")
    for rank in (0, 2):
        put_part(root, window("parts", extra=SLOW), rank)
    (root / "bad.parquet").write_text("bad")
    with Store.open([root]) as store:
        store.ingest()
    with duckdb.connect(store.path, read_only=True) as database:
        yield database


def test_windows_are_plain_rows(closed: duckdb.DuckDBPyConnection) -> None:
    (row,) = closed.execute(
        """
        SELECT "window", aim_stage, culprit_kind, diagnosis->>'$.aim.basis', shares['data.next_wait']
        FROM windows WHERE run_id = 'run' ORDER BY severity DESC LIMIT 1
        """
    ).fetchall()
    assert row[:4] == (2, DATA, "chronic", "delta")
    assert row[4] > 0.3


def test_stages_add_up(closed: duckdb.DuckDBPyConnection) -> None:
    off = closed.execute(
        """
        SELECT count(*) FROM windows JOIN (
            SELECT run_id, "window", sum(advance_ns) AS total, sum(share) AS sum_of_shares
                FROM stages GROUP BY ALL
        ) USING (run_id, "window")
        WHERE total <> exposed_makespan_ns OR abs(sum_of_shares - 1) > 1e-9
        """
    ).fetchall()
    assert off == [(0,)]


def test_cells_are_the_rows_of_the_packets_shown(closed: duckdb.DuckDBPyConnection) -> None:
    counted = closed.execute("SELECT run_id, count(*) FROM cells GROUP BY ALL ORDER BY ALL").fetchall()
    assert counted == [
        ("k=v", 2),
        ("other", STEPS * RANKS),
        ("parts", STEPS * 2),
        ("run", 5 * STEPS * RANKS),
    ]
    slowest = closed.execute(
        """
        SELECT rank, hostname FROM cells WHERE run_id = 'run' AND "window" = 2
        GROUP BY ALL ORDER BY avg("data.next_wait") DESC LIMIT 1
        """
    ).fetchall()
    assert slowest == [(2, "node-0")]
    assert closed.execute('SELECT "load", "it\'s ""it""" FROM cells WHERE run_id = \'k=v\'').fetchall() == [
        (5, 7),
        (6, 8),
    ]


def test_an_empty_store_has_an_empty_view(tmp_path: Path) -> None:
    path = put(tmp_path, window())
    with Store.open([tmp_path]) as store:
        store.ingest()
        path.unlink()
        store.ingest()
    assert store.path is not None
    with duckdb.connect(store.path, read_only=True) as database:
        assert database.execute("SELECT run_id FROM cells").fetchall() == []


def documented() -> dict[str, list[tuple[str, str, str]]]:
    """The tables of docs/store.md: name → (column, type, meaning)."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for section in re.split(r"^### ", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name = section.split("`")[1]
        rows = re.findall(r"^\| `([^`]+)` \| ([^|]+?) \| (.+?) \|$", section, flags=re.MULTILINE)
        found[name] = rows
    return found


def test_the_document_matches_the_schema() -> None:
    expected = {
        table.name: [(column.name, column.type, column.meaning) for column in table.columns]
        for table in (*TABLES, CELLS)
    }
    assert documented() == expected
    assert f"Schema version {SCHEMA_VERSION}" in DOCUMENT.read_text(encoding="utf-8")


def test_the_document_matches_a_store(closed: duckdb.DuckDBPyConnection) -> None:
    columns = closed.execute(
        """
        SELECT table_name, column_name, data_type, meaning
        FROM duckdb_columns() LEFT JOIN meanings USING (table_name, column_name)
        WHERE NOT internal AND table_name <> 'cells' ORDER BY table_name, column_index
        """
    ).fetchall()
    found: dict[str, list[tuple[str, str, str]]] = {}
    for table, *column in columns:
        found.setdefault(table, []).append(tuple(column))
    assert found == {name: rows for name, rows in documented().items() if name != "cells"}
    rows = closed.execute("SELECT table_name, meaning FROM meanings WHERE column_name IS NULL").fetchall()
    titles = re.findall(r"^### `(.+)`: (.+)$", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(rows) == sorted(title for title in titles if title[0] != "cells")
