"""From the files of some windows to what the store holds of them. Opens packet files, touches no database."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sfapp.accounting import judge, measured
from sfapp.errors import WindowError
from sfapp.model import Diagnosis, Window
from sfapp.packets import Conflict, LoadedWindow, Packet, group, load_packet
from sfapp.store.rows import Origin
from sfapp.store.scan import Found, Stamp

Key = tuple[str, int]
"""Run id and window number."""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A packet file as it was read, under the stamp it had when it was found.

    The stamp is the earlier of the two: a file that changes while it is read is read again next time.
    """

    name: str
    stamp: Stamp
    packet: Packet

    @property
    def key(self) -> Key:
        return self.packet.window.run_id, self.packet.window.number


@dataclass(frozen=True, slots=True)
class Refused:
    """A file that is no packet, and why."""

    name: str
    stamp: Stamp
    sha256: str
    reason: str


@dataclass(frozen=True, slots=True)
class Derived:
    """One window's diagnosis, compared with no reference yet."""

    diagnosis: Diagnosis
    origin: Origin


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a set of files comes to.

    Attributes:
        windows: the windows they make.
        states: file name → ``shown``, ``set_aside`` or ``redundant``.
        conflicts: what was in conflict among them.
        refused: files whose numbers cannot be added up.
    """

    windows: tuple[Derived, ...]
    states: Mapping[str, str]
    conflicts: tuple[Conflict, ...]
    refused: tuple[Refused, ...]


NOTHING = Outcome((), {}, (), ())


@dataclass(frozen=True, slots=True)
class Batch:
    """Some files as they were read, and what they come to by themselves.

    Attributes:
        looked_at: how many files were to be read, those included that had gone by then.
    """

    files: tuple[ReadFile, ...] = ()
    refused: tuple[Refused, ...] = ()
    outcome: Outcome = NOTHING
    looked_at: int = 0


def read_batch(found: Sequence[Found], cancel: threading.Event) -> Batch:
    """Read and diagnose some files; safe in many threads at once. Cut short when cancelled."""
    files: list[ReadFile] = []
    refused: list[Refused] = []
    for each in found:
        if cancel.is_set():
            return Batch()
        file = read(each)
        if isinstance(file, ReadFile):
            files.append(file)
        elif isinstance(file, Refused):
            refused.append(file)
    return Batch(tuple(files), tuple(refused), derive(files), len(found))


def read(file: Found) -> ReadFile | Refused | None:
    """One file, parsed and checked; None where it has gone since it was found."""
    if not file.is_nameable:
        return Refused(file.name, file.stamp, "", "its name is not UTF-8 text: rename it")
    loaded = load_packet(file.path)
    if isinstance(loaded, Packet):
        return ReadFile(file.name, file.stamp, loaded)
    if not os.path.lexists(file.path):
        return None
    return Refused(file.name, file.stamp, loaded.sha256, loaded.reason)


def derive(files: Sequence[ReadFile]) -> Outcome:
    """Group files into windows and diagnose each, all of one shape together.

    ``files`` must hold every file of every window among them.
    """
    grouped = group([file.packet for file in files])
    diagnoses, faults = _diagnose([found.window for found in grouped.windows])
    sound = [found for found in grouped.windows if _key(found.window) not in faults]
    states = _states([file for file in files if file.key not in faults], sound, grouped.conflicts)
    return Outcome(
        windows=tuple(
            Derived(diagnosis, Origin.of(found.window.manifest, diagnosis))
            for diagnosis, found in zip(diagnoses, sound, strict=True)
        ),
        states=states,
        conflicts=tuple(found for found in grouped.conflicts if (found.run_id, found.window) not in faults),
        refused=tuple(
            Refused(file.name, file.stamp, file.packet.sha256, faults[file.key])
            for file in files
            if file.key in faults
        ),
    )


def _key(window: Window) -> Key:
    return window.run_id, window.number


def _diagnose(windows: Sequence[Window]) -> tuple[list[Diagnosis], dict[Key, str]]:
    """Diagnoses in order, and the windows that have none: a packet may be in order and yet hold durations
    that cannot be added up. One such window must not stop the others."""
    try:
        return [judge(measures) for measures in measured(windows)], {}
    except WindowError as error:
        if len(windows) == 1:
            return [], {_key(windows[0]): str(error)}
    half = len(windows) // 2
    diagnoses, faults = _diagnose(windows[:half])
    more_diagnoses, more_faults = _diagnose(windows[half:])
    return diagnoses + more_diagnoses, faults | more_faults


def _states(
    files: Collection[ReadFile], windows: Sequence[LoadedWindow], conflicts: Sequence[Conflict]
) -> dict[str, str]:
    shown = {packet.path for found in windows for packet in found.packets}
    set_aside = {packet.path for conflict in conflicts for packet in conflict.set_aside}
    states = {}
    for file in files:
        path: Path = file.packet.path
        if path in shown:
            states[file.name] = "shown"
        elif path in set_aside:
            states[file.name] = "set_aside"
        else:
            states[file.name] = "redundant"
    return states
