"""Reduce old windows to their verdicts and some of their steps (`sfapp compact`, docs/fleet.md).

The verdict is written to a dataset below the packets first; then the kept steps are written next to the
packet, and then the packet is removed. After a crash at any moment either the packet or both others are
there, and the next call continues.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sfapp.errors import IncidentError, PacketError
from sfapp.files import remove_leftovers, sync_folder, temporary_directory
from sfapp.incidents import IncidentState
from sfapp.model import Window
from sfapp.model.sides import parse_compare
from sfapp.model.view import WindowKey, parse_query
from sfapp.model.window import SideChannel
from sfapp.packets import Packet, load_packet, write_packet
from sfapp.packets.paths import operator_files_of, thinned_path
from sfapp.service.incidents import FOLDER, incident_log_of
from sfapp.service.judging import WindowJudge
from sfapp.service.onsets import EpisodeLocator
from sfapp.service.problems import StoredProblems
from sfapp.store import Store, WindowQuery, ingest_to_dataset
from sfapp.store.reference_choices import ReferenceChoices

DATASET = "verdicts"
"""Folder below the packets that keeps the verdicts."""

_EVERY = 2**31


@dataclass(frozen=True, slots=True)
class ThinningPlan:
    """Windows that can be thinned, and why the others are kept.

    Attributes:
        windows: with their packets. bytes: of these packets.
        kept: number of windows by reason.
    """

    windows: tuple[tuple[WindowKey, Path, str], ...]
    bytes: int
    kept: dict[str, int]


@dataclass(frozen=True, slots=True)
class ThinningReport:
    """What was done.

    Attributes:
        thinned: number of windows. skipped: packets that changed meanwhile or cannot be written.
        before, after: bytes of the packets, and of what is left of them.
        leftovers: number of temporary files of killed processes that were removed.
    """

    thinned: int
    skipped: tuple[str, ...]
    before: int
    after: int
    cancelled: bool
    leftovers: int = 0


def thin_packets(
    root: Path,
    age: timedelta,
    steps: int,
    *,
    dry_run: bool,
    progress: Callable[[str, int, int], None],
    cancel: threading.Event,
) -> tuple[ThinningPlan, ThinningReport]:
    """Thin the packets below a folder whose windows ended so long ago, except those of interest.

    Args:
        steps: number of steps that are kept of each window.
        dry_run: change nothing; the report is then that of no window.
        progress: called with what is done, and how much of how much.

    Raises:
        StoreError: the folder cannot be read or written, or the chosen references cannot be read.
        IncidentError: it is not known which windows notes and incidents refer to.
        TemporaryFolderError: there is no place for temporary files.
    """
    with temporary_directory("sfapp-compact-") as scratch:
        dataset = Path(scratch) / DATASET if dry_run else root / DATASET
        ingest_to_dataset([root], dataset, lambda now: progress(now.phase, now.done, now.total), cancel)
        served = _served(root)
        with Store.open([dataset], memory=True, chosen=ReferenceChoices.next_to_any(served)) as store:
            store.ingest()
            notes = _Notes(served)
            plan = plan_thinning(store, root, notes, datetime.now(UTC) - age, steps)
    if dry_run or cancel.is_set():
        return plan, ThinningReport(0, (), 0, 0, cancel.is_set())
    leftovers = remove_leftovers(root)
    return plan, replace(_thin(plan, notes, steps, progress, cancel), leftovers=leftovers)


def plan_thinning(store: Store, root: Path, notes: _Notes, before: datetime, steps: int) -> ThinningPlan:
    """Return which windows of a store that ended before a moment can be thinned.

    Args:
        root: the folder whose packets may be thinned, resolved.

    Raises:
        IncidentError: it is not known which windows notes and incidents refer to.
    """
    windows: list[tuple[WindowKey, Path, str]] = []
    size, kept = 0, Counter[str]()
    for run in store.runs():
        telling = _telling(store, run.run_id)
        rows = store.timeline(WindowQuery(run.run_id))
        newest = max(row["window"] for row in rows)
        for row in rows:
            key = WindowKey(run.run_id, row["window"])
            ended_at = row["ended_at"] or row["started_at"]
            shown, set_aside = store.packet_files(key.run_id, key.window)
            path = shown[0].path
            if not isinstance(path, Path) or not os.path.exists(path):
                reason = "thinned before, or the packet is not there"
            elif path.is_symlink() or not path.parent.resolve().is_relative_to(root):
                # A link leads there, or a dataset names packets of another folder, or any path at all.
                reason = "the packet is in another folder"
            elif ended_at is None or ended_at > before:
                reason = "too new, or without a time"
            elif notes.refer_to(key):
                reason = "a note or an incident refers to it"
            elif key.window in telling:
                reason = "of a problem, or next to one"
            elif row["is_reference"]:
                reason = "other windows of the run are compared with it"
            elif key.window == newest:
                reason = "the last of its run"
            elif row["last_step"] - row["first_step"] < steps:
                reason = "few steps"
            elif len(shown) > 1 or shown[0].part_rank is not None or set_aside:
                reason = "of several files"
            elif operator_files_of([path]):
                reason = "with operator events"
            else:
                windows.append((key, path, shown[0].sha256))
                size += shown[0].size
                continue
            kept[reason] += 1
    return ThinningPlan(tuple(windows), size, dict(sorted(kept.items())))


def _telling(store: Store, run_id: str) -> set[int]:
    """Return the windows of a run's problems, and their neighbours, which show where they began."""
    problems = StoredProblems(lambda _: store, EpisodeLocator(WindowJudge(lambda _: store)))
    found = {window for one in problems.of_run(run_id, locates=False) for window in one.windows}
    return found | set(store.telling_windows([run_id], _EVERY).get(run_id, ()))


class _Notes:
    """Notes and incidents next to some folders, those that are written meanwhile included."""

    def __init__(self, served: Sequence[Path]) -> None:
        own, *others = (incident_log_of(folder, None) for folder in served)
        self._logs = [own, *(log for log in others if os.path.exists(log.path))]
        self._states: list[IncidentState] = []
        self._windows: set[WindowKey] = set()
        self._runs: set[str] = set()

    def refer_to(self, key: WindowKey) -> bool:
        """Return whether a note or an incident refers to a window.

        Raises:
            IncidentError: they cannot all be read.
        """
        states = [log.state() for log in self._logs]
        if list(map(id, states)) != list(map(id, self._states)):
            for state in states:
                if state.notices:
                    raise IncidentError(
                        f"notes and incidents cannot all be read ({state.notices[0]}), so that it is not "
                        "known which windows they refer to: nothing was thinned"
                    )
            named = [windows_named(state) for state in states]
            self._windows = {window for windows, _ in named for window in windows}
            self._runs = {run for _, runs in named for run in runs}
            self._states = states
        return key in self._windows or key.run_id in self._runs


def _served(root: Path) -> list[Path]:
    """Return the folders whose notes and choices may concern packets below a folder, itself first: it may
    have been served together with others, as a part of a larger folder, or folder by folder."""
    below = [Path(folder) for folder, names, _ in os.walk(root) if FOLDER in names]
    return [root, *root.parents, *(folder for folder in below if folder != root)]


def windows_named(state: IncidentState) -> tuple[set[WindowKey], set[str]]:
    """Return all windows to which notes and incidents refer, and all runs, as in a comparison of runs."""
    notes = [*state.notes, *(item.note for each in state.incidents for item in each.items if item.note)]
    found = {note.pin.window for note in notes if note.pin is not None}
    runs: set[str] = set()
    for item in (item for each in state.incidents for item in each.items):
        if item.window is not None:
            found.add(item.window)
        view, _ = parse_query(item.view)
        if view.reference is not None:
            found.add(view.reference)
        for side in parse_compare(item.view)[0].sides if item.kind == "comparison" else ():
            if side.window is None:
                runs.add(side.run_id)
            else:
                found.add(WindowKey(side.run_id, side.window))
    return found, runs


def _thin(
    plan: ThinningPlan,
    notes: _Notes,
    steps: int,
    progress: Callable[[str, int, int], None],
    cancel: threading.Event,
) -> ThinningReport:
    before = after = thinned = 0
    skipped: list[str] = []
    for done, (key, path, sha256) in enumerate(plan.windows, start=1):
        if cancel.is_set():
            break
        try:
            if notes.refer_to(key):
                raise PacketError("a note or an incident refers to it meanwhile")
            size = path.stat().st_size
            after += _thin_one(path, sha256, steps)
        except (PacketError, IncidentError, OSError) as error:
            skipped.append(f"{path}: {error}")
            continue
        before += size
        thinned += 1
        progress("thinning", done, len(plan.windows))
    return ThinningReport(thinned, tuple(skipped), before, after, cancel.is_set())


def _thin_one(path: Path, sha256: str, steps: int) -> int:
    """Replace a packet by some of its steps, and return their bytes.

    Raises:
        PacketError: it is no longer the packet that was judged, or what is written cannot be read.
        OSError: it cannot be removed.
    """
    packet = load_packet(path)
    if not isinstance(packet, Packet) or packet.sha256 != sha256:
        raise PacketError("it has changed since it was judged")
    target = thinned_path(path)
    write_packet(some_steps(packet.window, steps), target)
    sync_folder(path.parent)
    if not isinstance(load_packet(target), Packet):
        raise PacketError("what was written cannot be read again")
    path.unlink()
    return target.stat().st_size


def some_steps(window: Window, most: int) -> Window:
    """Return a window with the first step, the last one, and others at equal distances."""
    last = len(window.step_N) - 1
    chosen = sorted({round(index * last / (most - 1)) for index in range(most)})
    return replace(
        window,
        duration_SNR=window.duration_SNR[:, chosen],
        wall_NR=window.wall_NR[chosen],
        step_N=window.step_N[chosen],
        side={
            name: SideChannel(channel.value_NR[chosen], channel.sampled_NR[chosen])
            for name, channel in window.side.items()
        },
        waits={stage: wait_NR[chosen] for stage, wait_NR in window.waits.items()},
        reduced=None if window.reduced is None else window.reduced.of_steps(chosen),
    )
