"""Answer requests for stacks on a rank, and for ranks of this machine that cannot answer themselves.

All methods run on the captures' thread. The training thread is not involved: it may stand still.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType
from typing import Any

from sfapp.errors import CaptureError, SfappError
from sfapp.model.capture import MAX_REASON, STACKS_EXPIRE_SECONDS, CaptureRequest, RankCapture
from sfapp.model.stacks import MAX_FRAMES, MAX_THREADS, RankStacks, StackFrame, ThreadStack, stack_text
from sfapp.packets.capture_mailbox import CaptureMailbox
from sfapp.packets.job import JobRank

VARIABLE = "SFAPP_STACKS"
"""Environment variable: ``off`` refuses requests for stacks; ``python`` installs no signal handler, so that a
rank whose interpreter lock is held has no stacks."""

_NEIGHBOUR_SECONDS = 3.0
"""Seconds after which a rank answers for the silent ranks of its machine."""

_OWN_THREADS = "sfapp-"
_BUFFER_VARIABLES = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"


@dataclass(frozen=True, slots=True)
class _WaitingRequest:
    """A request that this rank has answered, for whose other ranks it may have to answer at ``due``."""

    request: CaptureRequest
    due: float


class StackResponder:
    """Answers of one recorder to requests for stacks.

    Args:
        rank: returns the recorder's rank.
        per_hour: number of requests that are answered in an hour.
        failures: receives messages about answers that could not be delivered.
    """

    def __init__(
        self, mailbox: CaptureMailbox, rank: Callable[[], JobRank], per_hour: int, failures: deque[str]
    ) -> None:
        self._mailbox = mailbox
        self._rank = rank
        self._per_hour = per_hour
        self._failures = failures
        self._training = threading.get_ident()
        self._mode = os.environ.get(VARIABLE, "").lower()
        self._answered: deque[float] = deque()
        self._waiting: deque[_WaitingRequest] = deque(maxlen=16)
        self._published: tuple[str, int] | None = None

    def publish(self) -> None:
        """Let other processes of this machine read the stacks through a signal, if there is a free one."""
        rank = self._rank()
        identity = rank.job.run_id, rank.identity.rank
        if self._mode in ("off", "python") or not self._per_hour or identity == self._published:
            return
        from sfapp.packets.stack_signal import publish

        self._published = identity
        try:
            publish(rank, self._training)
        except (OSError, RuntimeError, ValueError):  # Only stacks of a rank with a held lock are missing.
            return

    def close(self) -> None:
        """Stop answering for this process."""
        if self._published is not None:
            from sfapp.packets.stack_signal import withdraw

            self._published = None
            with suppress(OSError):  # Without a file descriptor left, the folder cannot be found.
                withdraw()

    def answer(self, request: CaptureRequest) -> None:
        """Answer a request for this rank, and plan to look after the other ranks of this machine."""
        from sfapp.packets.stack_signal import claim

        rank, now = self._rank(), time.monotonic()
        number = rank.identity.rank
        while self._answered and now - self._answered[0] > 3600:
            self._answered.popleft()
        is_first = claim(request.id, number)
        if why := self._refusal(request):
            self._report(rank, request, RankCapture(rank=number, status="refused", why=why))
            return
        self._answered.append(now)
        self._waiting.append(_WaitingRequest(request, now + _NEIGHBOUR_SECONDS))
        if is_first:
            self._deliver(rank, request, current_stacks(rank, self._training))
        if dump := flight_recorder_dump():
            self._deliver_dump(rank, request, dump)

    def answer_for_neighbours(self) -> None:
        """Answer for ranks of this machine that have not answered in time, once per request."""
        while self._waiting and time.monotonic() >= self._waiting[0].due:
            request = self._waiting.popleft().request
            if self._mode != "python":
                self._answer_for_neighbours(request)

    def _answer_for_neighbours(self, request: CaptureRequest) -> None:
        from sfapp.packets.stack_signal import claim, stack_processes, stacks_by_signal

        rank = self._rank()
        for process in stack_processes(request.run_id, rank.job.root):
            is_other = process.process != os.getpid()
            if is_other and process.rank in request.ranks and claim(request.id, process.rank):
                try:
                    self._deliver(rank, request, stacks_by_signal(process))
                except CaptureError as error:
                    answer = RankCapture(rank=process.rank, status="refused", why=str(error)[:MAX_REASON])
                    self._report(rank, request, answer)

    def _refusal(self, request: CaptureRequest) -> str:
        if self._mode == "off" or not self._per_hour:
            return "stacks are switched off on this rank"
        age = request.age_seconds()
        if age > STACKS_EXPIRE_SECONDS:
            return f"the request is too old: {age:.0f} s by the clock of this rank's machine"
        if len(self._answered) >= self._per_hour:
            return f"the limit of {self._per_hour} requests for stacks per hour is reached"
        return ""

    def _deliver(self, rank: JobRank, request: CaptureRequest, stacks: RankStacks) -> None:
        from sfapp.packets.stack_files import encode_stacks

        try:
            self._mailbox.deliver_file(rank, request, "stacks", stacks.rank, encode_stacks(stacks))
        except SfappError as error:
            self._failures.append(f"stacks: {error}")
            return
        self._report(rank, request, RankCapture(rank=stacks.rank, status="done"))

    def _deliver_dump(self, rank: JobRank, request: CaptureRequest, content: bytes) -> None:
        try:
            self._mailbox.deliver_file(rank, request, "dump", rank.identity.rank, content)
        except SfappError as error:
            self._failures.append(f"stacks: {error}")

    def _report(self, rank: JobRank, request: CaptureRequest, answer: RankCapture) -> None:
        try:
            self._mailbox.report(rank, request, answer)
        except SfappError as error:
            self._failures.append(f"stacks: {error}")


def current_stacks(rank: JobRank, training: int) -> RankStacks:
    """Return the present stacks of this process without the calling thread.

    Args:
        training: identifier of the training thread.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = [
        ThreadStack(stack_text(names.get(ident, f"thread {ident:#x}")), _frames_of(frame), ident == training)
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    ]
    threads.sort(key=lambda each: (not each.is_training, each.name.startswith(_OWN_THREADS)))
    return RankStacks(
        rank=rank.identity.rank,
        taken_at=datetime.now(UTC),
        source="interpreter",
        hostname=stack_text(rank.identity.hostname),
        process=os.getpid(),
        threads=tuple(threads[:MAX_THREADS]),
    )


def _frames_of(frame: FrameType | None) -> tuple[StackFrame, ...]:
    frames: list[StackFrame] = []
    while frame is not None and len(frames) < MAX_FRAMES:
        code = frame.f_code
        line = max(0, frame.f_lineno or 0)
        frames.append(StackFrame(stack_text(code.co_filename), stack_text(code.co_name), line))
        frame = frame.f_back
    return tuple(frames)


def flight_recorder_dump() -> bytes:
    """Return torch's Flight Recorder dump of this process; empty where it is off, has no calls, or is large.

    It has no stacks of calls, which would name code of every call of the last steps.
    """
    bindings: Any = sys.modules.get("torch._C._distributed_c10d")
    if bindings is None or all(os.environ.get(name) == "0" for name in _BUFFER_VARIABLES):
        return b""
    from sfapp.packets.stack_files import MAX_DUMP_BYTES

    for name in ("_dump_nccl_trace", "_dump_fr_trace"):
        dump = getattr(bindings, name, None)
        if dump is None:
            continue
        try:
            content = bytes(dump(includeCollectives=True, includeStackTraces=False, onlyActive=False))
        except Exception:  # fail-open: the bindings are private to torch and differ between versions
            continue
        if b"collective_seq_id" in content and len(content) <= MAX_DUMP_BYTES:
            return content
    return b""
