"""Where a recorder hears of captures, and says what came of them: files beside its packets, or its stream."""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path
from typing import Protocol

from sfapp.errors import SfappError
from sfapp.model.capture import CaptureRequest, RankCapture
from sfapp.recorder.transport.process_group import Team

NOT_YET, NEVER_CHOSEN = -1, -2
"""Instead of a first step: the rank that chooses it has not yet, or will not."""

_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 1.0, 8.0
_RANKS_A_LOOK = 256
"""Each further so many ranks that share a folder look a second less often: file servers are shared too."""

_LOOK_ANYWAY = 15
"""Looks after which the folder is read though it seems unchanged: its time may be cached."""


_SEEN, _KNOWN_AFTER_SECONDS = 30, 1.5


class Pace:
    """How fast a run steps, as seen now and then; to name a step that lies so many seconds ahead."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=_SEEN)

    def add(self, now: float, step: int) -> None:
        """The run is at this step."""
        self._seen.append((now, step))

    def ahead(self, seconds: float) -> int | None:
        """The step that begins in so many seconds or a little later; None before the pace is known."""
        if not self._seen:
            return None
        (begin, first), (end, last) = self._seen[0], self._seen[-1]
        if end - begin < _KNOWN_AFTER_SECONDS:
            return None
        return last + math.ceil(max(0, last - first) / (end - begin) * seconds) + 2


class Desk(Protocol):
    """Called on the captures' own thread, which may wait. Nothing raises but what files and streams raise."""

    def pause(self, team: Team) -> float:
        """Seconds between two questions for what is asked."""

    def asked(self, team: Team) -> list[CaptureRequest]:
        """Requests for this rank that were not given out yet, oldest first."""

    def first_step(self, team: Team, request: CaptureRequest) -> int:
        """What the lowest rank of a request has chosen: a step, ``NOT_YET`` or ``NEVER_CHOSEN``."""

    def tell(self, team: Team, request: CaptureRequest, said: RankCapture) -> None:
        """Say what this rank does about a request, in place of what it said before."""

    def root(self, team: Team, scratch: Path) -> Path:
        """The folder that operator events are written below, as packets are.

        Args:
            scratch: one that is there until they were delivered.
        """

    def deliver(self, team: Team, request: CaptureRequest, windows: tuple[int, ...], root: Path) -> None:
        """The events of these windows, as far as there are any, lie there now."""


class FileDesk:
    """Requests and answers as files beside the run's packets.

    Args:
        failures: requests that are none are told there.
    """

    def __init__(self, failures: deque[str]) -> None:
        self._failures = failures
        self._known: set[str] = set()
        self._looks = 0
        self._changed = -1

    def pause(self, team: Team) -> float:
        """As ``Desk``: the more ranks look into the same folder, the more seldom each does."""
        return min(_LONGEST_LOOK_SECONDS, _LOOK_SECONDS * max(1.0, team.job.world_size / _RANKS_A_LOOK))

    def asked(self, team: Team) -> list[CaptureRequest]:
        """As ``Desk``. Costs a look at the folder's time where nothing is new."""
        from sfapp.packets.captures import asked, changed_at

        changed = changed_at(team.job.root, team.job.run_id)
        self._looks += 1
        if changed is None or (changed >= 0 and changed == self._changed and self._looks % _LOOK_ANYWAY):
            return []
        self._changed = changed
        fresh = [path for path in asked(team.job.root, team.job.run_id) if path.name not in self._known]
        return [request for path in fresh if (request := self._taken(team, path)) is not None]

    def _taken(self, team: Team, path: Path) -> CaptureRequest | None:
        """The request in a file, if it is for this rank and new to it."""
        from sfapp.packets.captures import read_rank, read_request

        self._known.add(path.name)
        rank = team.identity.rank
        try:
            request = read_request(path, team.job.run_id)
            if rank not in request.ranks:
                return None
            before = read_rank(team.job.root, request, rank)
        except SfappError as refusal:
            self._failures.append(f"capture: {refusal}")
            return None
        if before is None:
            return request
        if before.status in ("asked", "running"):
            why = "the process that was to record it ended"
            self.tell(team, request, RankCapture(rank=rank, status="refused", why=why))
        return None

    def first_step(self, team: Team, request: CaptureRequest) -> int:
        """As ``Desk``."""
        from sfapp.packets.captures import read_rank

        said = read_rank(team.job.root, request, min(request.ranks))
        if said is None:
            return NOT_YET
        return NEVER_CHOSEN if said.first_step is None else said.first_step

    def tell(self, team: Team, request: CaptureRequest, said: RankCapture) -> None:
        """As ``Desk``.

        Raises:
            PacketError: the file cannot be written.
        """
        from sfapp.packets.captures import tell

        tell(team.job.root, request, said)

    def root(self, team: Team, scratch: Path) -> Path:
        """As ``Desk``: where the packets are."""
        return team.job.root

    def deliver(self, team: Team, request: CaptureRequest, windows: tuple[int, ...], root: Path) -> None:
        """As ``Desk``: they are where they belong."""
