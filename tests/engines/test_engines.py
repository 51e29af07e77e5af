"""Packets are read on Ray and on Dask, in real processes, as on one machine; lost workers change nothing."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

import sfapp
from sfapp.engines import packet_reader
from sfapp.engines.tasks import WorkersLostError, read_in_task, reader_on
from sfapp.errors import EngineError
from sfapp.store import IngestProgress, Store, ingest_to_dataset
from sfapp.store.parallel_reader import PacketReader, read_all
from sfapp.store.verdict_builder import PacketBatch
from tests.store.jobs import contents, put_run

SAMPLE = Path(__file__).parents[2] / "sample_data" / "packets"


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sample job, runs of many windows, and damaged files."""
    root = tmp_path_factory.mktemp("packets")
    shutil.copytree(SAMPLE, root / "sample", ignore=lambda folder, names: [n for n in names if n[0] == "."])
    for run in range(6):
        put_run(root, f"run-{run}", count=60)
    (root / "damaged.parquet").write_bytes(b"PAR1 and no more")
    return root


def stored(
    root: Path,
    reader: PacketReader = read_all,
    progress: Callable[[IngestProgress], None] | None = None,
) -> dict[str, list[str]]:
    """Return what a new store holds after an ingest: all rows of all tables, diagnoses as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "store.duckdb"
        with Store.open([root], db) as store:
            assert not store.ingest(progress, None, reader).cancelled
        return contents(db)


@pytest.fixture(scope="module")
def expected(packets: Path) -> dict[str, list[str]]:
    """Return what this process stores by itself."""
    return stored(packets)


def workers_of(engine: str) -> list[psutil.Process]:
    """Return the processes that run tasks."""
    children = psutil.Process().children(recursive=True)
    if engine == "ray":  # Ray's own agents have names like these, too.
        return [child for child in children if child.name().startswith("ray::read_in")]
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


class TestClusters:
    def test_a_cluster_stores_what_one_machine_does_to_the_last_byte(
        self, engine: str, packets: Path, expected: dict[str, list[str]]
    ) -> None:
        assert len(expected["quarantine"]) >= 1
        assert len(expected["windows"]) > 360
        with packet_reader(engine) as reader:
            assert stored(packets, reader) == expected

    def test_a_dataset_has_the_same_files_whichever_engine_wrote_it(
        self, engine: str, packets: Path, tmp_path: Path
    ) -> None:
        ingest_to_dataset([packets], tmp_path / "local")
        with packet_reader(engine) as reader:
            ingest_to_dataset([packets], tmp_path / "cluster", reader=reader)
        local, cluster = (
            {
                path.relative_to(tmp_path / name): path.read_bytes()
                for path in (tmp_path / name).rglob("*.parquet")
            }
            for name in ("local", "cluster")
        )
        assert len(local) == 9
        assert local == cluster

    def test_killed_workers_cost_time_and_nothing_else(
        self, engine: str, packets: Path, expected: dict[str, list[str]]
    ) -> None:
        killed: list[int] = []

        def kill(_: IngestProgress) -> None:
            """Kill one worker that has a task, after the first result."""
            if not killed and (found := workers_of(engine)):
                found[0].kill()
                killed.append(found[0].pid)

        with packet_reader(engine) as reader:
            found = stored(packets, reader, kill)
        assert killed
        assert found == expected

    def test_an_ingest_can_be_stopped_and_the_next_one_reads_the_rest(
        self, engine: str, packets: Path, expected: dict[str, list[str]], tmp_path: Path
    ) -> None:
        cancel, db = threading.Event(), tmp_path / "store.duckdb"
        with packet_reader(engine) as reader, Store.open([packets], db) as store:
            first = store.ingest(lambda _: cancel.set(), cancel, reader)
            assert first.cancelled
            rest = store.ingest(None, None, reader)
        assert first.added + rest.added == len(expected["packets"])
        assert contents(db) == expected

    def test_a_notebook_uses_the_cluster_it_is_connected_to(self, engine: str) -> None:
        with sfapp.open(SAMPLE, engine=engine) as opened, sfapp.open(SAMPLE) as expected:
            assert opened.windows.equals(expected.windows)
        with packet_reader(engine):  # The cluster is still there.
            pass

    def test_an_address_is_refused_where_there_is_a_connection(self, engine: str) -> None:
        with pytest.raises(EngineError, match="leave the address out"), packet_reader(engine, "127.0.0.1:1"):
            pass


@dataclass
class Fragile:
    """Cluster in this process, whose workers end at one file."""

    poison: str
    slots: int = 2

    def submit(self, function: Callable[[Any], Any], argument: Any) -> tuple[Any, ...]:
        assert function is read_in_task
        return tuple(argument)

    def finished(self, tasks: Collection[tuple[Any, ...]], seconds: float) -> list[tuple[Any, ...]]:
        return list(tasks)[:1]

    def result(self, task: tuple[Any, ...]) -> Sequence[PacketBatch]:
        if any(file.name.endswith(self.poison) for file in task):
            raise WorkersLostError("killed by signal 9")
        return read_in_task(task)

    def cancel(self, task: tuple[Any, ...]) -> None:
        raise AssertionError("nothing is left running")


def test_a_file_that_ends_its_workers_is_set_aside_and_all_others_are_read(
    packets: Path, expected: dict[str, list[str]]
) -> None:
    poison = "run-3/00000017.parquet"
    found = stored(packets, reader_on(Fragile(poison)))
    (refused,) = set(found["quarantine"]) - set(expected["quarantine"])
    assert poison in refused
    assert "every worker that read it ended: killed by signal 9" in refused
    assert len(found["packets"]) == len(expected["packets"]) - 1
