"""Stacks of the ranks of a run: request them, wait for them, read the newest ones (docs/stacks.md)."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from sfapp.errors import CaptureError, WindowNotFoundError
from sfapp.model.capture import CaptureState
from sfapp.model.stacks import MergedStacks, RankStacks
from sfapp.operators.stacks import merge_stacks
from sfapp.packets.captures import (
    ask_for_capture,
    changed_at,
    combined_state,
    file_names,
    new_stacks_request,
    read_request,
    request_files,
    state_of,
)
from sfapp.packets.paths import folder_name
from sfapp.packets.stack_files import read_stacks
from sfapp.packets.stack_requests import OUTSIDE_SECONDS, RunPlace, answer_from_outside, find_run
from sfapp.storage import StoragePath, local_paths
from sfapp.views.text.stacks import stack_lines, stacks_headline

WAIT_SECONDS = 12.0
"""Longest wait for stacks: recorders check about once a second, and answer for silent ranks 3 s later."""

NO_ANSWER = (
    "no answer. Its machine is silent or its interpreter lock is held, and no other rank of the run and no "
    "aggregator there could read its stack: run `sfapp stacks` or `py-spy dump` on its machine"
)
"""Reason for a rank that has not answered in time, neither itself nor through a signal."""

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class RunStacks:
    """Stacks of one request."""

    state: CaptureState
    stacks: tuple[RankStacks, ...]

    def at(self, now: datetime) -> RunStacks:
        """Return the same stacks with the state that their request has at a later time."""
        state = combined_state(self.state.request, self.state.ranks, now)
        return self if state == self.state else RunStacks(state, self.stacks)

    @cached_property
    def merged(self) -> MergedStacks:
        """Return the training threads, equal stacks merged."""
        return merge_stacks(self.stacks)

    @cached_property
    def merged_threads(self) -> MergedStacks:
        """Return all threads, equal stacks merged."""
        return merge_stacks(self.stacks, all_threads=True)

    @cached_property
    def missing(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return reasons and ranks without stacks."""
        have = {each.rank for each in self.stacks}
        whys = {each.rank: each.why or "its stacks cannot be read" for each in self.state.ranks}
        found: dict[str, list[int]] = {}
        for rank in self.state.request.ranks:
            if rank not in have:
                found.setdefault(whys.get(rank, self._why_none), []).append(rank)
        return tuple((why, tuple(ranks)) for why, ranks in sorted(found.items(), key=lambda each: each[1]))

    @property
    def _why_none(self) -> str:
        """Return what is known of a rank that has not answered."""
        age = (datetime.now(UTC) - self.state.request.asked_at).total_seconds()
        return NO_ANSWER if self.is_complete or age > wait_seconds(self) else "no answer yet"

    def document(self, all_threads: bool = False) -> dict[str, Any]:
        """Return them as plain data."""
        request = self.state.request
        merged = self.merged_threads if all_threads else self.merged
        return {
            "run": request.run_id,
            "request": request.id,
            "asked_at": request.asked_at.isoformat(),
            "asked_by": request.asked_by,
            "reason": request.reason,
            "is_over": self.is_complete,
            "stacks": [asdict(group) for group in merged.groups],
            "shared_frames": merged.shared_frames,
            "left_out": merged.left_out,
            "missing": [{"why": why, "ranks": ranks} for why, ranks in self.missing],
            "headline": stacks_headline(merged),
            "lines": list(stack_lines(merged, self.missing)),
        }

    @property
    def title(self) -> str:
        """Return when, by whom and why they were requested, in words."""
        request = self.state.request
        author = f" by {request.asked_by}" if request.asked_by else ""
        reason = f": {request.reason}" if request.reason else ""
        return f"Requested {request.asked_at:%Y-%m-%d %H:%M:%S} UTC{author}{reason}"

    @property
    def is_complete(self) -> bool:
        """Return whether no further rank will answer."""
        return self.state.is_over


def place_of(paths: Sequence[Path], run_id: str) -> RunPlace:
    """Return where a run's files are.

    Raises:
        WindowNotFoundError: there is no such run below these paths.
    """
    for path in paths:
        try:
            return find_run(path, run_id)
        except CaptureError:
            continue
    raise WindowNotFoundError(f"run {run_id!r} has no folder here")


def request_stacks(
    place: RunPlace, ranks: Sequence[int] = (), *, reason: str = "", asked_by: str = ""
) -> RunStacks:
    """Ask ranks for their stacks, all of them if none are named.

    Raises:
        CaptureError: too many ranks are named.
        PacketError: the request cannot be written.
    """
    request = new_stacks_request(place.run_id, ranks or place.asked_ranks, reason=reason, asked_by=asked_by)
    ask_for_capture(place.root, request)
    return RunStacks(state_of(place.root, request), ())


def follow_stacks(root: Path, asked: RunStacks) -> RunStacks:
    """Return what has arrived by now; after some seconds, answer for ranks of this machine that cannot."""
    request = asked.state.request
    age = (datetime.now(UTC) - request.asked_at).total_seconds()
    if age > OUTSIDE_SECONDS and not state_of(root, request).is_over:
        answer_from_outside(root, request)
    return RunStacks(state_of(root, request), tuple(read_stacks(root, request)))


def wait_for_stacks(root: Path, asked: RunStacks) -> RunStacks:
    """Wait until all ranks have answered or the time is over, and return what has arrived."""
    deadline = time.monotonic() + wait_seconds(asked)
    while True:
        found = follow_stacks(root, asked)
        if found.is_complete or time.monotonic() > deadline:
            return found
        time.sleep(_POLL_SECONDS)


def stacks_next_to(packets: Sequence[StoragePath], run_id: str) -> RunStacks | None:
    """Return the newest stacks of the run that has these packets; None if there are none."""
    for path in local_paths(packets):
        if path.parent.name == folder_name(run_id):
            try:
                return newest_stacks(path.parent.parent, run_id)
            except WindowNotFoundError:
                return None
    return None


def wait_seconds(asked: RunStacks) -> float:
    """Return the longest wait for stacks; recorders of many ranks check their folder less often."""
    return WAIT_SECONDS + min(len(asked.state.request.ranks) / 64, 16.0)


def newest_stacks(root: Path, run_id: str) -> RunStacks:
    """Return the newest stacks of a run.

    Raises:
        WindowNotFoundError: none were requested, or no rank has answered.
    """
    found = _NEWEST.read(root, run_id)
    if found is None:
        raise WindowNotFoundError(f"run {run_id!r} has no stacks: `sfapp stacks` requests them")
    return found


def newest_stacks_below(paths: Sequence[Path], run_id: str) -> RunStacks:
    """Return the newest stacks of a run below packet folders, or in the run's own folder. No packet is read.

    Raises:
        WindowNotFoundError: as ``newest_stacks``.
    """
    name = folder_name(run_id)
    for path in map(Path.absolute, paths):
        for root in (path, path.parent):
            if root / name in (path, path / name) and (found := _NEWEST.read(root, run_id)) is not None:
                return found
    raise WindowNotFoundError(f"run {run_id!r} has no stacks: `sfapp stacks` requests them")


class _NewestStacks:
    """Reader of the newest stacks of a run. Safe on any thread.

    One call reads at a time, and the last result is kept while its files are unchanged: stacks of many ranks
    take a second and tens of megabytes to read, and pages and requests ask for them again and again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: tuple[Path, str, int] | None = None
        self._kept: RunStacks | None = None

    def read(self, root: Path, run_id: str) -> RunStacks | None:
        """Return the newest stacks of a run; None if there are none."""
        with self._lock:
            changed = changed_at(root, run_id)
            if changed is None:
                return None
            if self._of != (root, run_id, changed) or changed < 0:
                self._of, self._kept = (root, run_id, changed), _read_newest(root, run_id)
            elif self._kept is not None:
                self._kept = self._kept.at(datetime.now(UTC))
            return self._kept


_NEWEST = _NewestStacks()


def _read_newest(root: Path, run_id: str) -> RunStacks | None:
    names = file_names(root, run_id)
    for path in reversed(request_files(root, run_id, names)):
        try:
            request = read_request(path, run_id)
        except CaptureError:  # An invalid file must not hide the others.
            continue
        if request.kind == "stacks" and (stacks := tuple(read_stacks(root, request, names))):
            return RunStacks(state_of(root, request, names), stacks)
    return None
