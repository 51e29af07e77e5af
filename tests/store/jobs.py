"""Packets on disk and the stores over them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.generated_jobs import part
from sfapp.model import Window
from sfapp.packets import packet_path, write_packet
from sfapp.store import Store, WindowQuery
from sfapp.store.schema import TABLES
from tests.builders import BACKWARD, CALLBACKS, DATA, MS, ddp_job, window_of

STEPS, RANKS = 12, 4

SLOW: dict[tuple[str, int | str], int] = {(DATA, 2): 60 * MS}
SLOWER: dict[tuple[str, int | str], int] = {(CALLBACKS, 1): 90 * MS}
SLOW_EVERYWHERE: dict[tuple[str, int | str], int] = {(BACKWARD, "all"): 30 * MS}


def window(
    run: str = "run",
    number: int = 0,
    *,
    extra: dict[tuple[str, int | str], int] | None = None,
    seed: int | None = None,
    ranks: int = RANKS,
    **manifest: Any,
) -> Window:
    """A small data-parallel window; its number is its seed where none is given."""
    durations = ddp_job(ranks=ranks, steps=STEPS, seed=number if seed is None else seed, extra=extra)
    return window_of(durations, first_step=number * STEPS, run_id=run, window=number, **manifest)


def put(root: Path, made: Window, path: Path | None = None) -> Path:
    """Write a window where the recorder would, or elsewhere below the root."""
    path = path or packet_path(root, made.run_id, made.number)
    write_packet(made, path)
    return path


def put_run(root: Path, run: str = "run", count: int = 5) -> list[Path]:
    """A run whose third window is slow."""
    return [put(root, window(run, number, extra=SLOW if number == 2 else None)) for number in range(count)]


def put_part(root: Path, made: Window, rank: int) -> Path:
    return put(root, part(made, rank), packet_path(root, made.run_id, made.number, rank))


def later(path: Path, seconds: int = 10) -> None:
    """Make a file as if it had been written later."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + seconds * 10**9))


def numbers(store: Store, **query: Any) -> list[int]:
    """Numbers of the windows that match, in the order asked for (by number where none is)."""
    query = {"sort": (("window", "asc"),)} | query
    return [row["window"] for row in store.windows(WindowQuery(**query)).rows]


def contents(path: Path) -> dict[str, list[str]]:
    """Everything a closed store says, for comparing two of them."""
    with duckdb.connect(path, read_only=True) as database:
        return {
            table.name: sorted(map(repr, database.execute(f"SELECT * FROM {table.name}").fetchall()))
            for table in TABLES
        }


def change_store(folder: Path, statement: str) -> Path:
    """Put a run and its store into a folder, change the store as another program could, return its path."""
    put_run(folder)
    with Store.open([folder]) as store:
        store.ingest()
        path = store.path
    assert path is not None
    with duckdb.connect(path) as database:
        database.execute(statement)
    return path
