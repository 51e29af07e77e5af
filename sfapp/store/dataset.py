"""Keep a dataset of verdicts up to date with packets (docs/fleet.md, Datasets).

A temporary store holds what is in the dataset and what is added to it. What another machine has added to a
bucket meanwhile is therefore read, and not lost, before a file is replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from sfapp.errors import StoreError
from sfapp.files import temporary_directory
from sfapp.storage import ObjectPath, StoragePath, resolved
from sfapp.store.ingest import IngestProgress, IngestReport
from sfapp.store.lock import StoreLock
from sfapp.store.parallel_reader import PacketReader, read_all
from sfapp.store.store import Store
from sfapp.store.verdict_writer import ChangedMeanwhileError, DatasetReport

_ATTEMPTS = 10
"""Times that a dataset is written again because a file is not as it was read."""


def ingest_to_dataset(
    paths: Sequence[StoragePath],
    target: StoragePath,
    progress: Callable[[IngestProgress], None] | None = None,
    cancel: threading.Event | None = None,
    reader: PacketReader = read_all,
) -> tuple[IngestReport, DatasetReport]:
    """Read the packets below some paths that a dataset does not describe yet, and add their verdicts to it.

    A window stays in the dataset when its packets are removed.

    Args:
        target: folder, or prefix in a bucket.

    Raises:
        StoreBusyError: another process of this machine writes to the folder.
        StoreError: the dataset cannot be written.
        TemporaryFolderError: there is no place for temporary files.
    """
    target = resolved(target)
    if isinstance(target, ObjectPath) and target.storage.is_web:
        raise StoreError(f"{target}: a web server takes no files; name a folder or a bucket")
    lock = _locked(target) if isinstance(target, Path) else None
    try:
        with (
            temporary_directory("sfapp-dataset-") as folder,
            Store.open([*paths, target], Path(folder) / "store.duckdb") as store,
        ):
            report, changed = store.ingest(progress, cancel, reader), ""
            for _ in range(_ATTEMPTS):
                try:
                    return report, store.write_verdicts(target)
                except ChangedMeanwhileError as error:
                    changed = str(error)
                    if report.cancelled:  # Before all files of the dataset were read: they stay.
                        return report, DatasetReport(0, 0, sum(run.windows for run in store.runs()))
                    report = _together(report, store.ingest(progress, cancel, reader))
    finally:
        if lock is not None:
            lock.release()
    raise StoreError(
        f"{changed} is not as it was read, {_ATTEMPTS} times, and stays: other machines replace it all the "
        "time, or its folder cannot be listed; try again later"
    )


def _locked(folder: Path) -> StoreLock:
    try:
        (folder / ".sfapp").mkdir(parents=True, exist_ok=True)
        return StoreLock.acquire(folder / ".sfapp" / "dataset", dataset=folder)
    except OSError as error:
        raise StoreError(f"the dataset {folder} cannot be written: {error.strerror}") from error


def _together(first: IngestReport, again: IngestReport) -> IngestReport:
    return replace(
        again,
        added=first.added + again.added,
        unchanged=first.unchanged,
        quarantined=first.quarantined + again.quarantined,
        removed=first.removed + again.removed,
        seconds=first.seconds + again.seconds,
    )
