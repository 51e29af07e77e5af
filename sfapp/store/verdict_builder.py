"""From packet files to the rows that the store keeps of them. Opens packets, touches no database.

Everything here may run in any thread or process: what comes back is plain rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sfapp.accounting import Measures, RunStages, RunWaits, aligned, judge, measured, run_waits
from sfapp.errors import WindowError
from sfapp.model import Diagnosis, Window
from sfapp.packets import Conflict, Grouped, Packet, group, load_packet
from sfapp.store.scan import FoundFile, as_text
from sfapp.store.verdict_rows import DerivedWindow, Key, WindowOrigin, stages_table, windows_table

Row = dict[str, Any]

StoredWaits = Callable[[RunStages], RunWaits]
"""What the windows that are stored already say of where a run's ranks wait."""


@dataclass(frozen=True, slots=True)
class PacketBatch:
    """Some files as they were read, and the rows that follow from them alone.

    Attributes:
        packets, quarantine, conflicts: rows of these tables.
        windows, stages: rows of these tables, compared with no reference.
        conflict_count: a conflict has a row for each of its files.
        found: the files that were to be read, those included that had gone by then.
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
        """Under which the store knows these files."""
        return [found.name for found in self.found]

    @property
    def keys(self) -> set[Key]:
        """The windows that these files are of."""
        return {(row["run_id"], row["window"]) for row in self.packets}


@dataclass(frozen=True, slots=True)
class _File:
    """A packet under the name and stamp that its file had when it was found.

    A file that changes while it is read is then under its earlier stamp, and is read again next time.
    """

    found: FoundFile
    packet: Packet


def read_batch(
    found: Sequence[FoundFile],
    keys: Collection[Key] | None = None,
    stored_waits: StoredWaits | None = None,
) -> PacketBatch:
    """Read files, make windows of them and diagnose those, all of one shape together.

    Args:
        keys: leave out packets of other windows than these; none are left out where None.
        stored_waits: where the ranks of a run wait. Without, windows have only those of the batch to go by.
    """
    files: list[_File] = []
    quarantine: list[Row] = []
    for each in found:
        packet = _read(each)
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


def _read(found: FoundFile) -> Packet | Row | None:
    """The packet in a file, or its row in ``quarantine``; None where it has gone since it was found."""
    if not found.is_nameable:
        return _refused(found, "", "its name is not UTF-8 text: rename it")
    loaded = load_packet(found.path)
    if isinstance(loaded, Packet):
        return loaded
    if not os.path.lexists(found.path):
        return None
    return _refused(found, loaded.sha256, loaded.reason)


def _derive(
    files: Sequence[_File], stored_waits: StoredWaits | None
) -> tuple[Grouped, list[DerivedWindow], list[tuple[_File, str]]]:
    """Windows with their diagnoses, and the files that cannot be used with the reason.

    A packet may be in order and yet hold durations that cannot be added up. The files of such a window are
    taken out, and what is left is looked at again: it may be an older version of the same window.
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
        DerivedWindow(diagnosis, WindowOrigin.of(found.window.manifest, diagnosis))
        for diagnosis, found in zip(_diagnose(measures, stored_waits), grouped.windows, strict=True)
    ]
    return grouped, windows, []


def _measure(windows: Sequence[Window]) -> tuple[list[Measures], dict[Key, str]]:
    """Measures in order, and the windows that have none; one of those does not stop the others."""
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
    """Diagnoses in order, each window with what the others of its run say of where ranks wait."""
    alone = [judge(one) for one in measures]
    waits = dict(run_waits(alone))
    if stored_waits is not None:
        # More windows know better. What these add to them counts when all are read.
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
        }
        for file in files
    ]


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
