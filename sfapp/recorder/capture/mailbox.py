"""Exchange capture requests and answers through files next to a recorder's packets."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

from sfapp.errors import SfappError
from sfapp.model.capture import CaptureRequest, RankCapture
from sfapp.packets.capture_mailbox import NEVER_CHOSEN, NOT_YET, FileKind
from sfapp.packets.job import JobRank

_POLL_SECONDS, _LONGEST_POLL_SECONDS = 1.0, 8.0
_RANKS_PER_POLL_SECOND = 256
"""The poll interval grows by one second per this many ranks, to spare a shared file server."""

_POLLS_PER_FORCED_READ = 15
"""Polls after which the folder is read even if it seems unchanged, because its time may be cached."""

_REST = 20.0
"""Shortest poll interval as a multiple of the processor time of the last poll: any user of the folder can put
so many files there that a rank would list them all the time, beside its training thread."""


class FileCaptureMailbox:
    """``CaptureMailbox`` of files next to the run's packets.

    Args:
        failures: receives messages about invalid requests.
    """

    def __init__(self, failures: deque[str]) -> None:
        self._failures = failures
        self._known: set[str] = set()
        self._polls = 0
        self._changed = -1
        self._poll_s = 0.0

    def poll_seconds(self, rank: JobRank) -> float:
        """Return the poll interval in seconds, longer the more ranks share the folder, and the more files it
        has."""
        by_ranks = _POLL_SECONDS * max(1.0, rank.job.world_size / _RANKS_PER_POLL_SECOND)
        return max(min(_LONGEST_POLL_SECONDS, by_ranks), _REST * self._poll_s)

    def new_requests(self, rank: JobRank) -> list[CaptureRequest]:
        """Return new requests for this rank. If nothing is new, only the folder's time is read."""
        began = time.thread_time()
        try:
            return self._new_requests(rank)
        finally:
            self._poll_s = time.thread_time() - began

    def _new_requests(self, rank: JobRank) -> list[CaptureRequest]:
        from sfapp.packets.captures import changed_at, request_files

        changed = changed_at(rank.job.root, rank.job.run_id)
        self._polls += 1
        if changed is None or (
            changed >= 0 and changed == self._changed and self._polls % _POLLS_PER_FORCED_READ
        ):
            return []
        self._changed = changed
        newest = request_files(rank.job.root, rank.job.run_id)
        fresh = [path for path in newest if path.name not in self._known]
        self._known.intersection_update(path.name for path in newest)  # others are not read again
        return [request for path in fresh if (request := self._read_new(rank, path)) is not None]

    def _read_new(self, rank: JobRank, path: Path) -> CaptureRequest | None:
        """Return the request in a file if it is for this rank and the rank has not answered it."""
        from sfapp.packets.captures import read_rank, read_request

        self._known.add(path.name)
        try:
            request = read_request(path, rank.job.run_id)
            if rank.identity.rank not in request.ranks:
                return None
            before = read_rank(rank.job.root, request, rank.identity.rank)
        except SfappError as refusal:
            self._failures.append(f"capture: {refusal}")
            return None
        if before is None:
            return request
        if before.status in ("asked", "running"):
            why = "the process that was to capture it has ended"
            self.report(rank, request, RankCapture(rank=rank.identity.rank, status="refused", why=why))
        return None

    def first_step(self, rank: JobRank, request: CaptureRequest) -> int:
        """Return the first step that the request's lowest rank has chosen."""
        from sfapp.packets.captures import read_rank

        answer = read_rank(rank.job.root, request, min(request.ranks))
        if answer is None:
            return NOT_YET
        return NEVER_CHOSEN if answer.first_step is None else answer.first_step

    def report(self, rank: JobRank, request: CaptureRequest, capture: RankCapture) -> None:
        """Write this rank's answer to a request.

        Raises:
            PacketError: the file cannot be written.
        """
        from sfapp.packets.captures import write_rank_capture

        write_rank_capture(rank.job.root, request, capture)

    def root(self, rank: JobRank, scratch: Path) -> Path:
        """Return the folder for packets."""
        return rank.job.root

    def deliver(self, rank: JobRank, request: CaptureRequest, windows: tuple[int, ...], root: Path) -> None:
        """Do nothing: the events were written to their final place."""

    def deliver_file(
        self, rank: JobRank, request: CaptureRequest, kind: FileKind, of_rank: int, content: bytes
    ) -> None:
        """Write the file next to the request.

        Raises:
            CaptureError: it is no valid file of its kind.
            PacketError: it cannot be written.
        """
        from sfapp.packets.stack_files import write_file

        write_file(rank.job.root, request, kind, of_rank, content)
