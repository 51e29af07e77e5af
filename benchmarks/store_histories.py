"""Random histories of packets, two datasets and a store that follows them: a Hypothesis state machine.

Packets and parts of two runs are written, replaced, damaged, moved, removed and put back, and ingested into
datasets now and then. After an ingest, a store that is open all the time has what a new store reads from the
same files. ``tests/store/test_store_histories.py`` runs some histories, ``make fuzz`` many.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from benchmarks.delivery_histories import memory_folder
from benchmarks.generated_jobs import noisy_durations, part, window_on_hosts
from sfapp.model import Window
from sfapp.packets import packet_path, write_packet
from sfapp.store import Store, ingest_to_dataset
from sfapp.store.schema import CONFLICTS, PACKETS, QUARANTINE, RUN_REFERENCES, STAGES, WINDOWS
from sfapp.store.verdict_encoding import decode_verdicts

NUMBERS, RANKS, STEPS, CONTENTS = 2, 2, 12, 3
FIRST_S = 1_790_000_000
COMPARED = (WINDOWS, STAGES, CONFLICTS, PACKETS, QUARANTINE, RUN_REFERENCES)

runs = st.sampled_from(["a", "b"])
numbers = st.integers(0, NUMBERS - 1)
contents = st.integers(0, CONTENTS - 1)
ranks = st.integers(0, RANKS - 1)
any_of = st.integers(0, 1 << 16)


def window(run: str, number: int, content: int) -> Window:
    """Return a window with one of the contents that it can have: no late rank, or one in some stage."""
    durations_SNR = noisy_durations(RANKS, STEPS, number + NUMBERS * content)
    if content:
        durations_SNR[content - 1, :, content - 1] += 60_000_000
    day = 24 + content % 2
    times = {"started_at": f"2026-11-{day}T08:0{number}:00Z", "ended_at": f"2026-11-{day}T08:0{number}:30Z"}
    return window_on_hosts(run, number, durations_SNR, ("host-1", "host-2"), **times)


@cache
def packet(run: str, number: int, content: int, rank: int | None = None) -> bytes:
    """Return the packet of a window, or the part of one rank."""
    whole = window(run, number, content)
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        path = packet_path(Path(folder), run, number, rank)
        write_packet(whole if rank is None else part(whole, rank), path)
        return path.read_bytes()


def rows_of(store: Store) -> dict[str, list[str]]:
    """Return what a store has of each table, but not from which file of verdicts.

    Refused parts of described windows are left out: one that gets the time back that the dataset knows is
    refused again, while a new store does not read it.
    """
    found = {}
    for table in COMPARED:
        columns = ", ".join(f'"{name}"' for name in table.names if name != "verdicts")
        condition = "NOT contains(reason, 'and stays')" if table is QUARANTINE else "true"
        rows = store._database.tuples(f"SELECT {columns} FROM {table.name} WHERE {condition}")
        found[table.name] = sorted(map(repr, rows))
    return found


class StoreHistories(RuleBasedStateMachine):
    """The packets of a team, its dataset and another's, and a store over all that stays open."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory(prefix="sfapp-store-", dir=memory_folder())
        folder = Path(self.temporary.name)
        names = ("packets", "elsewhere", "verdicts", "other-verdicts")
        self.packets, self.elsewhere, self.dataset, self.other_dataset = (folder / name for name in names)
        for name in names:
            (folder / name).mkdir()
        self.writes = 0
        self.in_dataset: set[tuple[str, int]] = set()
        self.roots, self.db = [self.packets, self.dataset, self.other_dataset], folder / "store.duckdb"
        self.store = Store.open(self.roots, db=self.db)

    def teardown(self) -> None:
        self.store.close()
        self.temporary.cleanup()

    # ---- the packets ----------------------------------------------------------------------------

    def put(self, path: Path, data: bytes) -> None:
        """Write a file, each a second after the one before it."""
        self.writes += 1
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(0, (FIRST_S + self.writes) * 10**9))

    def file(self, chosen: int) -> Path:
        files = sorted(self.packets.rglob("*.parquet"))
        return files[chosen % len(files)]

    def has_files(self) -> bool:
        return any(self.packets.rglob("*.parquet"))

    def has_removed_files(self) -> bool:
        return any(self.elsewhere.rglob("*.parquet"))

    @rule(run=runs, number=numbers, content=contents)
    def write_packet(self, run: str, number: int, content: int) -> None:
        self.put(packet_path(self.packets, run, number), packet(run, number, content))

    @rule(run=runs, number=numbers, content=contents, rank=ranks)
    def write_part(self, run: str, number: int, content: int, rank: int) -> None:
        self.put(packet_path(self.packets, run, number, rank), packet(run, number, content, rank))

    @rule(run=runs, number=numbers, content=contents)
    def write_all_parts(self, run: str, number: int, content: int) -> None:
        for rank in range(RANKS):
            self.write_part(run, number, content, rank)

    @precondition(has_files)
    @rule(chosen=any_of, run=runs, number=numbers, content=contents)
    def replace_by_a_packet_of_any_window(self, chosen: int, run: str, number: int, content: int) -> None:
        self.put(self.file(chosen), packet(run, number, content))

    @precondition(has_files)
    @rule(chosen=any_of)
    def damage(self, chosen: int) -> None:
        path = self.file(chosen)
        self.put(path, path.read_bytes()[:-20])

    @precondition(has_files)
    @rule(chosen=any_of, seconds=st.integers(-20, 20))
    def touch(self, chosen: int, seconds: int) -> None:
        path = self.file(chosen)
        mtime_ns = path.stat().st_mtime_ns + seconds * 10**9
        os.utime(path, ns=(mtime_ns, mtime_ns))

    @precondition(has_files)
    @rule(chosen=any_of)
    def move(self, chosen: int) -> None:
        path = self.file(chosen)
        folder = self.packets / "moved"
        folder.mkdir(exist_ok=True)
        path.rename(folder / f"{path.parent.name}{path.name}")

    @precondition(has_files)
    @rule(chosen=any_of)
    def remove(self, chosen: int) -> None:
        path = self.file(chosen)
        folder = self.elsewhere / path.parent.name
        folder.mkdir(exist_ok=True)
        path.rename(folder / path.name)

    @precondition(has_removed_files)
    @rule(chosen=any_of)
    def put_back(self, chosen: int) -> None:
        files = sorted(self.elsewhere.rglob("*.parquet"))
        path = files[chosen % len(files)]
        path.rename(self.packets / path.relative_to(self.elsewhere))

    # ---- the dataset and the store --------------------------------------------------------------

    def contents_of_dataset(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.dataset.rglob("*.parquet")}

    @rule()
    def ingest_to_the_dataset(self) -> None:
        ingest_to_dataset([self.packets], self.dataset)
        verdicts = [decode_verdicts(data).table for data in self.contents_of_dataset().values()]
        keys = {(row["run_id"], row["window"]) for table in verdicts for row in table.to_pylist()}
        assert self.in_dataset <= keys
        self.in_dataset = keys

    @rule()
    def ingest_to_the_dataset_twice(self) -> None:
        self.ingest_to_the_dataset()
        before = self.contents_of_dataset()
        self.ingest_to_the_dataset()
        assert self.contents_of_dataset() == before

    @rule()
    def ingest_to_another_dataset(self) -> None:
        """Another team's, which is brought up to date at other times."""
        ingest_to_dataset([self.packets], self.other_dataset)

    def other_files(self) -> list[Path]:
        return sorted(self.other_dataset.rglob("*.parquet"))

    @precondition(lambda self: bool(self.other_files()))
    @rule(chosen=any_of)
    def remove_a_file_of_the_other_dataset(self, chosen: int) -> None:
        files = self.other_files()
        files[chosen % len(files)].unlink()

    @rule()
    def ingest(self) -> None:
        self.store.ingest()

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = Store.open(self.roots, db=self.db)

    @rule()
    def compare_with_a_new_store(self) -> None:
        with Store.open(self.roots, memory=True) as new:
            for store in (self.store, new):
                store.ingest()
                store.ingest()
            found, expected = rows_of(self.store), rows_of(new)
            assert not {table for table in found if found[table] != expected[table]}
            assert not self.store.ingest().changed
