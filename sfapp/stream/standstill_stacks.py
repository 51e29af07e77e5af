"""Request the stacks of a run's ranks once per standstill, on the aggregator's machine (docs/stacks.md)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sfapp.errors import SfappError
from sfapp.model.capture import MAX_REASON, MAX_STACK_RANKS, CaptureRequest
from sfapp.model.samples import StandstillSample
from sfapp.model.standstill import parse_roll_call
from sfapp.packets.captures import ask_for_capture, new_stacks_request, state_of
from sfapp.packets.stack_requests import OUTSIDE_SECONDS, answer_from_outside
from sfapp.stream.live_state import LiveSnapshot

VARIABLE = "SFAPP_STANDSTILL_STACKS"
"""Environment variable of the aggregator that switches these requests off if it is ``off``."""

MOST_PER_RUN = 20
"""Standstills of one run whose stacks are taken while the aggregator runs."""

LEAST_SECONDS_BETWEEN = 60.0

_MOST_RUNS = 1024
_NAMED_RANKS = 4


class StandstillStacks:
    """Requests for stacks, called on one thread.

    Args:
        root: the packet directory.
        on_failure: called with the reason when a request cannot be written.
        clock: monotonic seconds.
    """

    def __init__(
        self, root: Path, on_failure: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._root = root
        self._on_failure = on_failure
        self._clock = clock
        self._is_on = os.environ.get(VARIABLE, "").lower() != "off"
        self._counts: dict[str, int] = {}
        self._newest: dict[str, tuple[int, float]] = {}
        self._open: list[tuple[float, CaptureRequest]] = []

    def note(self, run_id: str, standstill: StandstillSample, snapshot: LiveSnapshot) -> None:
        """Request the stacks of the ranks that have not left, once for a standstill that lasts."""
        if standstill.has_ended:
            return
        ranks = [rank.identity.rank for rank in snapshot.ranks if rank.run_id == run_id and not rank.has_left]
        roll = parse_roll_call(standstill.roll_call)
        holders = () if roll is None else roll.holders[:_NAMED_RANKS]
        held = f"; held by {', '.join(f'rank {rank}' for rank in holders)}" if holders else ""
        reason = f"the job stands still at step {standstill.step}{held}"
        self.request(run_id, standstill.began_ns, ranks, reason)

    def request(self, run_id: str, began_ns: int, ranks: Sequence[int], reason: str) -> bool:
        """Request stacks unless that was done for this standstill; return whether a request was written.

        Args:
            began_ns: when the run finished its last step, which identifies the standstill.
            ranks: ranks that may answer. Of more than one request may name, the first are asked.
        """
        now = self._clock()
        before, at = self._newest.get(run_id, (None, -LEAST_SECONDS_BETWEEN))
        count = self._counts.get(run_id, 0)
        if not self._is_on or not ranks or before == began_ns or count >= MOST_PER_RUN:
            return False
        if now - at < LEAST_SECONDS_BETWEEN or (not count and len(self._counts) >= _MOST_RUNS):
            return False
        self._newest[run_id], self._counts[run_id] = (began_ns, now), count + 1
        asked = sorted(ranks)[:MAX_STACK_RANKS]
        try:
            request = new_stacks_request(
                run_id, asked, reason=reason[:MAX_REASON], asked_by="sfapp aggregate"
            )
            ask_for_capture(self._root, request)
        except SfappError as error:
            self._on_failure(f"stacks of run {run_id}: {error}")
            return False
        self._open.append((now + OUTSIDE_SECONDS, request))
        return True

    def follow(self) -> None:
        """Answer for ranks of this machine that have not answered in time, on a thread of its own."""
        now = self._clock()
        due = [request for at, request in self._open if at <= now]
        self._open = [(at, request) for at, request in self._open if at > now]
        for request in due:
            if not state_of(self._root, request).is_over:
                threading.Thread(
                    target=self._answer, args=(request,), name="sfapp-stacks", daemon=True
                ).start()

    def _answer(self, request: CaptureRequest) -> None:
        try:
            answer_from_outside(self._root, request)
        except SfappError as error:
            self._on_failure(f"stacks of run {request.run_id}: {error}")
