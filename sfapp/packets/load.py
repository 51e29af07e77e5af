"""Load windows from files: read each file, then group the files that belong together.

``group`` is pure, so that files can be read in many threads and new files can be added later.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sfapp.errors import PacketError
from sfapp.model import Window
from sfapp.packets.assemble import merge
from sfapp.packets.attempts import starts_of
from sfapp.packets.packet_layout import Limits
from sfapp.packets.paths import find_packets
from sfapp.packets.read import DEFAULT_LIMITS, Packet, Quarantined, load_packet
from sfapp.storage import RequestPool, StoragePath, storage_of
from sfapp.terminal import quoted


@dataclass(frozen=True, slots=True)
class LoadedWindow:
    """Window and the files it was built from: one file, or several parts ascending by rank."""

    window: Window
    packets: tuple[Packet, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Files of a window that contradict each other or do not match.

    Attributes:
        reason: one line with the difference and the choice.
        shown: the files that are used.
        set_aside: the files that are not used; they are not moved.
    """

    run_id: str
    window: int
    reason: str
    shown: tuple[Packet, ...]
    set_aside: tuple[Packet, ...]


@dataclass(frozen=True, slots=True)
class Grouped:
    """Windows of a set of packets, ascending by run and number, and the conflicts among them."""

    windows: tuple[LoadedWindow, ...]
    conflicts: tuple[Conflict, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Windows of a set of files. Files in ``quarantined`` were refused."""

    windows: tuple[LoadedWindow, ...]
    quarantined: tuple[Quarantined, ...]
    conflicts: tuple[Conflict, ...]


def read_windows(paths: Iterable[StoragePath], limits: Limits = DEFAULT_LIMITS) -> Loaded:
    """Return all windows in these files and folders.

    Raises:
        PacketError: a path does not exist. A bad file does not raise: it is quarantined.
    """
    return read_files(find_packets(paths), limits)


def read_files(files: Sequence[StoragePath], limits: Limits = DEFAULT_LIMITS) -> Loaded:
    """Return all windows in these files. A bad file does not raise: it is quarantined."""
    readers = max((storage_of(path).readers for path in files), default=1)
    with RequestPool.open(readers) as pool:
        pending = [pool.submit(partial(load_packet, path, limits)) for path in files]
        found = [packet.result() for packet in pending]
    grouped = group([packet for packet in found if isinstance(packet, Packet)])
    refused = tuple(packet for packet in found if isinstance(packet, Quarantined))
    return Loaded(grouped.windows, refused, grouped.conflicts)


def read_window(path: StoragePath, limits: Limits = DEFAULT_LIMITS) -> Window:
    """Return the window in one file, or in a folder with exactly one window.

    Raises:
        PacketError: there is none or more than one, or its file is refused.
    """
    loaded = read_windows([path], limits)
    if len(loaded.windows) == 1:
        return loaded.windows[0].window
    if loaded.windows:
        raise PacketError(f"{len(loaded.windows)} windows here: name the file of one", path=str(path))
    if loaded.quarantined:
        first = loaded.quarantined[0]
        raise PacketError(first.reason, path=str(first.path))
    raise PacketError("no packet files here (*.parquet)", path=str(path))


def group(packets: Sequence[Packet]) -> Grouped:
    """Return the windows of packets in any order, and the conflicts among them. Pure: opens no file.

    - The same content counts once, under the first path.
    - Files of different attempts at a run are never mixed (``attempts.starts_of``): those of one are used,
      the others are conflicts. Files that name no attempt belong to any.
    - Of two files with the same whole window, or the same rank's part of one, the newer is used (by
      modification time, then by path); the older is a conflict. A part that is the beginning of the rank's
      longest one is redundant.
    - If a whole window and parts exist, the whole window is used, and parts add the ranks it misses. A part
      of a rank that the whole window has is redundant, and a conflict only if its numbers differ.
    - Parts are merged by ``sfapp.packets.assemble.merge``; those that do not fit are conflicts.
    """
    by_window: defaultdict[tuple[str, int], dict[str, Packet]] = defaultdict(dict)
    for packet in sorted(packets, key=lambda packet: packet.path):
        by_window[packet.window.run_id, packet.window.number].setdefault(packet.sha256, packet)
    windows, conflicts = [], []
    for key in sorted(by_window):
        loaded, found = _group_one(tuple(by_window[key].values()))
        windows.append(loaded)
        conflicts.extend(found)
    return Grouped(tuple(windows), tuple(conflicts))


def _group_one(packets: tuple[Packet, ...]) -> tuple[LoadedWindow, list[Conflict]]:
    if len(packets) == 1 and packets[0].part_rank is None:
        return LoadedWindow(packets[0].window, packets), []
    conflicts: list[Conflict] = []
    packets = _of_one_start(packets, conflicts)
    newest = _newest_of_each(packets, conflicts)
    whole = newest.pop(None, None)
    parts = tuple(newest.values())
    if whole is not None:
        parts = (whole, *_parts_for(whole, parts, conflicts))
    if whole is not None and len(parts) == 1:
        return LoadedWindow(whole.window, parts), conflicts
    assembly = merge(parts)
    if assembly.odd_schema:
        reason = "another stage list, world size or accumulation than the other parts: left out"
        conflicts.append(_conflict(reason, assembly.used, assembly.odd_schema))
    if assembly.odd_steps:
        reason = "no step in common with the other parts: left out"
        conflicts.append(_conflict(reason, assembly.used, assembly.odd_steps))
    return LoadedWindow(assembly.window, assembly.used), conflicts


def _conflict(reason: str, shown: Sequence[Packet], set_aside: Sequence[Packet]) -> Conflict:
    window = shown[0].window
    return Conflict(window.run_id, window.number, reason, tuple(shown), tuple(set_aside))


def _of_one_start(packets: tuple[Packet, ...], conflicts: list[Conflict]) -> tuple[Packet, ...]:
    """Return the files of the start with a whole window (several: the newest), or else with most ranks."""
    starts = starts_of([packet.window.manifest for packet in packets])
    named = [(packet, start) for packet, start in zip(packets, starts, strict=True) if start is not None]
    ranks = Counter(start for _, start in named)
    if len(ranks) < 2:
        return packets

    def precedence(file: tuple[Packet, tuple[str, int]]) -> tuple[bool, int, int, str]:
        packet, start = file
        return packet.part_rank is None, ranks[start], packet.mtime_ns, packet.path.name

    _, chosen = max(named, key=precedence)
    others = [packet for packet, start in named if start != chosen]
    kept = tuple(packet for packet, start in zip(packets, starts, strict=True) if start in (None, chosen))
    files = "1 file is" if len(others) == 1 else f"{len(others)} files are"
    reason = f"{files} of another attempt at the run: left out; open them in a folder of their own"
    conflicts.append(_conflict(reason, kept, others))
    return kept


def _newest_of_each(packets: Sequence[Packet], conflicts: list[Conflict]) -> dict[int | None, Packet]:
    """Return the newest file of the whole window (None) and of each rank's part, without beginnings of it."""
    rivals: defaultdict[int | None, list[Packet]] = defaultdict(list)
    for packet in packets:
        rivals[packet.part_rank].append(packet)
    newest = {}
    for rank, found in rivals.items():
        files = found if rank is None or len(found) == 1 else _without_beginnings(found)
        *older, newest[rank] = sorted(files, key=lambda packet: (packet.mtime_ns, packet.path))
        if older:
            what = "this window" if rank is None else f"rank {rank}'s part"
            reason = f"{len(files)} files hold {what} with different content: the newest is shown"
            conflicts.append(_conflict(reason, [newest[rank]], older))
    return newest


def _without_beginnings(parts: Sequence[Packet]) -> list[Packet]:
    """Return the parts of one rank without those whose rows are the first ones of the longest part.

    An aggregator writes what had arrived of a window that a silent rank has not closed; the rank writes all.
    """
    longest = max(parts, key=lambda part: len(part.window.step_N))
    return [part for part in parts if part is longest or not _begins(part.window, longest.window)]


def _begins(part: Window, longest: Window) -> bool:
    """Return whether the longest part begins with all rows of a shorter one of its rank."""
    steps = len(part.step_N)
    is_beginning = steps < len(longest.step_N) and np.array_equal(part.step_N, longest.step_N[:steps])
    return is_beginning and _agree(longest, part)


def _parts_for(whole: Packet, parts: Sequence[Packet], conflicts: list[Conflict]) -> tuple[Packet, ...]:
    """Return the parts of ranks that the whole window misses, after comparing the other parts with its rows.
    No rank can be added to a window that was reduced over its ranks.
    """
    has_rows = set(whole.window.ranks.rank)
    reduced = whole.window.reduced is not None
    present = {part.part_rank for part in parts} if reduced else has_rows
    redundant = [part for part in parts if part.part_rank in has_rows]
    differing = [part for part in redundant if not _agree(whole.window, part.window)]
    if differing:
        ranks = ", ".join(str(part.part_rank) for part in differing[:8])
        reason = f"the whole window and the parts of ranks {quoted(ranks)[1:-1]} differ: the whole is shown"
        conflicts.append(_conflict(reason, [whole], differing))
    return tuple(part for part in parts if part.part_rank not in present)


def _agree(whole: Window, part: Window) -> bool:
    """Return whether a rank's part equals the whole window on the steps that both have."""
    if whole.stages != part.stages:
        return False
    common, of_whole, of_part = np.intersect1d(
        whole.step_N, part.step_N, assume_unique=True, return_indices=True
    )
    column = whole.ranks.rank.index(part.ranks.rank[0])
    durations = np.array_equal(whole.duration_SNR[:, of_whole, column], part.duration_SNR[:, of_part, 0])
    walls = np.array_equal(whole.wall_NR[of_whole, column], part.wall_NR[of_part, 0])
    return len(common) > 0 and durations and walls
