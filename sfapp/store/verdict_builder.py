"""Convert packet files to rows of the store. Opens packets and uses no database.

Everything here may run on any thread or in any process, because the results are plain rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sfapp.accounting import Measures, RunStages, RunWaits, aligned, judge, measured, run_waits
from sfapp.errors import WindowError
from sfapp.model import Diagnosis, Window
from sfapp.packets import Conflict, Grouped, Packet, Quarantined, group, load_packets
from sfapp.storage import FoundFile, as_text, storage_of
from sfapp.store.scan import to_read_again, window_stem
from sfapp.store.verdict_rows import DerivedWindow, Key, WindowOrigin, stages_table, windows_table

Row = dict[str, Any]

MOST_BYTES = 256 * 2**20
"""Packets that a batch holds in memory; a small file may expand to 32 MiB (``Limits``)."""

StoredWaits = Callable[[RunStages], RunWaits]
"""Function that returns where a run's ranks wait according to the windows in the store."""


@dataclass(frozen=True, slots=True)
class PacketBatch:
    """Files that were read, and the rows derived from them alone.

    Attributes:
        packets, quarantine, conflicts: rows of these tables.
        windows, stages: rows of these tables, not yet compared with a reference.
        conflict_count: number of conflicts; each has a row per file.
        found: the files of the batch, including those that had disappeared.
    """

    packets: tuple[Row, ...]
    quarantine: tuple[Row, ...]
    conflicts: tuple[Row, ...]
    windows: pa.Table
    stages: pa.Table
    conflict_count: int
    found: tuple[FoundFile, ...]

    @property
    def names(self) -> list[str]:
        """Names of these files in the store."""
        return [found.name for found in self.found]

    @property
    def keys(self) -> set[Key]:
        """Windows to which these files belong."""
        return {key_of(row) for row in self.packets}


def key_of(row: Mapping[str, Any]) -> Key:
    """Return the window of a row."""
    return row["run_id"], row["window"]


@dataclass(frozen=True, slots=True)
class _File:
    """Packet with the name and stamp of its file at the time when it was found.

    If the file changes while it is read, the earlier stamp makes the next ingest read it again.
    """

    found: FoundFile
    packet: Packet


def read_batch(
    found: Sequence[FoundFile],
    keys: Collection[Key] | None = None,
    stored_waits: StoredWaits | None = None,
    most_bytes: int = MOST_BYTES,
) -> PacketBatch:
    """Read files, build their windows and diagnose those of one shape together.

    Without ``keys``, it ends with the window whose packets fill the memory: ``found`` of the batch are the
    files until there, one at least, and the caller reads the rest.

    Args:
        keys: only windows among these; all if None.
        stored_waits: where the ranks of a run wait according to the store. If None, only the batch's windows
            are used.
        most_bytes: memory of the packets of a batch.
    """
    files: list[_File] = []
    quarantine: list[Row] = []
    held = 0
    loaded = _load(found)
    for index, each in enumerate(found):
        if keys is None and held > most_bytes and window_stem(each) != window_stem(found[index - 1]):
            found = found[:index]
            break
        packet = _readable(each, next(loaded))
        held += packet.window.nbytes if isinstance(packet, Packet) else 0
        if isinstance(packet, Packet):
            if keys is None or _key(packet.window) in keys:
                files.append(_File(each, packet))
        elif packet is not None:
            quarantine.append(packet)
    grouped, windows, unusable = _derive(files, stored_waits)
    refused = {file.found.name for file, _ in unusable}
    usable = [file for file in files if file.found.name not in refused]
    quarantine += (_refused(file.found, file.packet.sha256, reason) for file, reason in unusable)
    return PacketBatch(
        packets=tuple(_packet_rows(usable, grouped)),
        quarantine=tuple(quarantine),
        conflicts=tuple(row for conflict in grouped.conflicts for row in _conflict_rows(conflict)),
        windows=windows_table(windows),
        stages=stages_table([window.diagnosis for window in windows]),
        conflict_count=len(grouped.conflicts),
        found=tuple(found),
    )


def without_windows(
    batch: PacketBatch, keys: Collection[Key], stored_waits: StoredWaits
) -> tuple[PacketBatch, list[FoundFile]]:
    """Return a batch without some windows, and their files."""
    names = {row["path"] for row in batch.packets if key_of(row) in keys}
    if not names:
        return batch, []
    others = [found for found in batch.found if found.name not in names]
    left = [found for found in batch.found if found.name in names]
    return read_batch(others, batch.keys - set(keys), stored_waits), left


def _load(found: Sequence[FoundFile]) -> Iterator[Packet | Quarantined | None]:
    """Yield each file's packet or the reason why it is refused; None if its name cannot be stored."""
    loaded = load_packets(each.path for each in found if each.is_nameable)
    return (next(loaded) if each.is_nameable else None for each in found)


def _readable(found: FoundFile, loaded: Packet | Quarantined | None) -> Packet | Row | None:
    """Return the packet in a file, its row in ``quarantine``, or None if the file has disappeared."""
    if loaded is None:
        if (encoding := sys.getfilesystemencoding()) == "utf-8":
            return _refused(found, "", "its name is not UTF-8 text: rename it")
        reason = f"this locale takes its name for {encoding}: set PYTHONUTF8=1"
        return _refused(to_read_again(found), "", reason)
    if isinstance(loaded, Packet):
        return loaded
    storage = storage_of(found.path)
    if not storage.is_there(found.path):
        return None
    if loaded.may_pass or (storage.is_remote and not loaded.size):
        # Nothing of it was read, for example because access is refused.
        found = to_read_again(found)
    return _refused(found, loaded.sha256, loaded.reason)


def _derive(
    files: Sequence[_File], stored_waits: StoredWaits | None
) -> tuple[Grouped, list[DerivedWindow], list[tuple[_File, str]]]:
    """Return windows with their diagnoses, and the files that cannot be used with the reasons.

    A valid packet may hold durations that overflow when added up. The files of such a window are left out and
    the rest is grouped again, because it may contain an older version of the same window.
    """
    grouped = group([file.packet for file in files])
    measures, faults = _measure([found.window for found in grouped.windows])
    if faults:
        reasons = {
            packet.path: faults[_key(found.window)]
            for found in grouped.windows
            if _key(found.window) in faults
            for packet in found.packets
        }
        unusable = [(file, reasons[file.found.path]) for file in files if file.found.path in reasons]
        usable = [file for file in files if file.found.path not in reasons]
        grouped, windows, more = _derive(usable, stored_waits)
        return grouped, windows, unusable + more
    windows = [
        DerivedWindow(diagnosis, WindowOrigin.of(found.window, diagnosis))
        for diagnosis, found in zip(_diagnose(measures, stored_waits), grouped.windows, strict=True)
    ]
    return grouped, windows, []


def _measure(windows: Sequence[Window]) -> tuple[list[Measures], dict[Key, str]]:
    """Return measures in order and the faults of windows that cannot be measured, without losing the
    others.
    """
    try:
        return measured(windows), {}
    except WindowError as error:
        if len(windows) == 1:
            return [], {_key(windows[0]): str(error)}
    half = len(windows) // 2
    measures, faults = _measure(windows[:half])
    more_measures, more_faults = _measure(windows[half:])
    return measures + more_measures, faults | more_faults


def _diagnose(measures: Sequence[Measures], stored_waits: StoredWaits | None) -> list[Diagnosis]:
    """Return diagnoses in order, each aligned where its run's ranks wait."""
    alone = [judge(one) for one in measures]
    waits = dict(run_waits(alone))
    if stored_waits is not None:
        # The store usually has more windows of the run. The windows of this batch count once all files are
        # read.
        stored = {key: stored_waits(key) for key in waits}
        waits |= {key: known for key, known in stored.items() if known.boundary is not None}
    return [diagnosis for _, diagnosis in aligned(measures, alone, waits)]


def _key(window: Window) -> Key:
    return window.run_id, window.number


def _packet_rows(files: Sequence[_File], grouped: Grouped) -> list[Row]:
    shown = {packet.path for found in grouped.windows for packet in found.packets}
    set_aside = {packet.path for conflict in grouped.conflicts for packet in conflict.set_aside}

    def state_of(packet: Packet) -> str:
        if packet.path in shown:
            return "shown"
        return "set_aside" if packet.path in set_aside else "redundant"

    return [
        {
            "path": file.found.name,
            "size": file.found.stamp.size,
            "mtime_ns": file.found.stamp.mtime_ns,
            "sha256": file.packet.sha256,
            "run_id": file.packet.window.run_id,
            "window": file.packet.window.number,
            "part_rank": file.packet.part_rank,
            "state": state_of(file.packet),
            "hostnames": sorted(file.packet.window.hostnames),
            "layout": file.packet.layout,
            "verdicts": None,
        }
        for file in files
    ]


def refused_batch(found: Sequence[FoundFile], reason: str) -> PacketBatch:
    """Return a batch that refuses all of these files for one reason."""
    return PacketBatch(
        packets=(),
        quarantine=tuple(_refused(each, "", reason) for each in found),
        conflicts=(),
        windows=windows_table([]),
        stages=stages_table([]),
        conflict_count=0,
        found=tuple(found),
    )


def _refused(found: FoundFile, sha256: str, reason: str) -> Row:
    return {
        "path": found.name,
        "size": found.stamp.size,
        "mtime_ns": found.stamp.mtime_ns,
        "sha256": sha256,
        "reason": reason,
    }


def _conflict_rows(conflict: Conflict) -> list[Row]:
    return [
        {
            "run_id": conflict.run_id,
            "window": conflict.window,
            "reason": conflict.reason,
            "path": as_text(packet.path),
            "size": packet.size,
            "sha256": packet.sha256,
            "shown": shown,
        }
        for shown, packets in ((True, conflict.shown), (False, conflict.set_aside))
        for packet in packets
    ]
