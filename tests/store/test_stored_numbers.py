"""A store of another version is built again: its verdicts would differ from those of a new one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import duckdb
import pytest

from sfapp.assets import EXAMPLES, assets
from sfapp.store import Store
from sfapp.store.schema import SCHEMA_VERSION
from tests.builders import reduced
from tests.store.jobs import SLOW, put, window

VERSION, DIGEST = 30, "351fd000335bd356"
"""Schema version, and digest of what is stored of the windows below."""


@pytest.fixture
def stored(tmp_path: Path) -> list[object]:
    """What a store says of the examples, and of a run with whole and reduced windows."""
    for number in range(6):
        made = window("mixed", number, extra=SLOW if number == 4 else None, ranks=8)
        put(tmp_path, reduced(made) if number % 2 else made)
    with Store.open([assets() / EXAMPLES, tmp_path], tmp_path / "store.duckdb") as store:
        store.ingest()
    with duckdb.connect(tmp_path / "store.duckdb", read_only=True) as database:
        verdicts = database.execute('SELECT diagnosis FROM windows ORDER BY run_id, "window"').fetchall()
        references = database.execute("SELECT reference FROM run_references ORDER BY run_id").fetchall()
    return [rounded(json.loads(text)) for (text,) in verdicts + references]


def rounded(value: object) -> object:
    """Without the last digits, which may differ between machines."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return f"{value:.6g}" if isinstance(value, float) else value


def test_other_numbers_have_another_schema_version(stored: list[object]) -> None:
    digest = hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()[:16]
    assert (SCHEMA_VERSION, digest) == (VERSION, DIGEST), (
        "what stores hold has changed: raise SCHEMA_VERSION, so that they are built again, and enter its "
        "digest here (of changed example packets, only enter the digest)"
    )
