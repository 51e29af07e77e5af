"""Where a recorder hears of captures, and says what came of them: files beside its packets, or its stream."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from sfapp.errors import SfappError
from sfapp.model.capture import CaptureRequest, RankCapture
from sfapp.packets.capture_mailbox import NEVER_CHOSEN, NOT_YET
from sfapp.packets.job import JobRank

_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 1.0, 8.0
_RANKS_A_LOOK = 256
"""Each further so many ranks that share a folder look a second less often: file servers are shared too."""

_LOOK_ANYWAY = 15
"""Looks after which the folder is read though it seems unchanged: its time may be cached."""


class FileCaptureMailbox:
    """Requests and answers as files beside the run's packets.

    Args:
        failures: requests that are none are told there.
    """

    def __init__(self, failures: deque[str]) -> None:
        self._failures = failures
        self._known: set[str] = set()
        self._looks = 0
        self._changed = -1

    def poll_seconds(self, team: JobRank) -> float:
        """As ``CaptureMailbox``: the more ranks look into the same folder, the more seldom each does."""
        return min(_LONGEST_LOOK_SECONDS, _LOOK_SECONDS * max(1.0, team.job.world_size / _RANKS_A_LOOK))

    def new_requests(self, team: JobRank) -> list[CaptureRequest]:
        """As ``CaptureMailbox``. Costs a look at the folder's time where nothing is new."""
        from sfapp.packets.captures import asked, changed_at

        changed = changed_at(team.job.root, team.job.run_id)
        self._looks += 1
        if changed is None or (changed >= 0 and changed == self._changed and self._looks % _LOOK_ANYWAY):
            return []
        self._changed = changed
        fresh = [path for path in asked(team.job.root, team.job.run_id) if path.name not in self._known]
        return [request for path in fresh if (request := self._taken(team, path)) is not None]

    def _taken(self, team: JobRank, path: Path) -> CaptureRequest | None:
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
            self.report(team, request, RankCapture(rank=rank, status="refused", why=why))
        return None

    def first_step(self, team: JobRank, request: CaptureRequest) -> int:
        """As ``CaptureMailbox``."""
        from sfapp.packets.captures import read_rank

        said = read_rank(team.job.root, request, min(request.ranks))
        if said is None:
            return NOT_YET
        return NEVER_CHOSEN if said.first_step is None else said.first_step

    def report(self, team: JobRank, request: CaptureRequest, capture: RankCapture) -> None:
        """As ``CaptureMailbox``.

        Raises:
            PacketError: the file cannot be written.
        """
        from sfapp.packets.captures import write_rank_capture

        write_rank_capture(team.job.root, request, capture)

    def root(self, team: JobRank, scratch: Path) -> Path:
        """As ``CaptureMailbox``: where the packets are."""
        return team.job.root

    def deliver(self, team: JobRank, request: CaptureRequest, windows: tuple[int, ...], root: Path) -> None:
        """As ``CaptureMailbox``: they are where they belong."""
