"""Run a rank's captures: receive requests, profile exactly the requested steps and report the result.

A separate thread polls for requests and writes the traces. On the training thread a step costs one comparison
with ``StepState.capture_due``. Ranks do not coordinate: each starts at the same step number. Errors are
reported in the capture's state, and training continues.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sfapp.errors import SfappError, describe_error
from sfapp.model.capture import MAX_REASON, CaptureLimits, CaptureRequest, CaptureStatus, RankCapture
from sfapp.packets.capture_mailbox import NEVER_CHOSEN, NOT_YET, CaptureMailbox, StepPace
from sfapp.packets.job import JobRank
from sfapp.packets.threads import start_or_note
from sfapp.recorder.capture.budget import CaptureBudget
from sfapp.recorder.capture.profiler import CannotProfile, Profiling, warm_up
from sfapp.recorder.capture.rank_stacks import StackResponder
from sfapp.recorder.capture.trace_converter import (
    FREE_BYTES,
    CaptureQueue,
    ProfiledSteps,
    TraceConverter,
    free_bytes,
)
from sfapp.recorder.timing.timers import NEVER, StepState

VARIABLE = "SFAPP_CAPTURES"
"""Environment variable that disables captures if it is ``off``."""

_QUEUE_CAPACITY = 2
"""Number of captures that may wait to be written."""

_GRACE_SECONDS = 15.0
"""Longest time for which closing waits for a trace to be converted."""


@dataclass(frozen=True, slots=True)
class Position:
    """Current position of a recorder.

    Attributes:
        step: number of the current step, or of the next one between steps.
        window_end: first step of the next window.
    """

    rank: JobRank
    step: int
    window_end: int


@dataclass(frozen=True, slots=True)
class _ScheduledCapture:
    """Request that waits for its first step.

    Attributes:
        until: when it expires, in monotonic seconds: clocks of day differ between machines, and are set.
    """

    request: CaptureRequest
    first_step: int
    until: float


class RankCaptures:
    """Captures of one recorder. ``pass_step`` is called on the training thread, between steps.

    Args:
        mailbox: source of requests and destination of results.
        position: returns the recorder's position; called on this object's thread.
        mark: marks a step that has just been recorded as profiled.
        limits: limits of captures; None disables captures and starts no thread.
        failures: receives messages about errors outside a single capture.
        look: called at every poll on this object's thread; it must not raise.
    """

    def __init__(
        self,
        state: StepState,
        mailbox: CaptureMailbox,
        position: Callable[[], Position],
        mark: Callable[[int], None],
        limits: CaptureLimits | None,
        failures: deque[str],
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._process = os.getpid()
        self._look = look
        self._state = state
        self._mailbox = mailbox
        self._position = position
        self._mark = mark
        self._failures = failures
        self._limits = limits or CaptureLimits()
        self._budget = CaptureBudget(self._limits)
        self._lock = threading.Lock()  # held to start or expire the scheduled request
        self._scheduled: _ScheduledCapture | None = None
        self._running: ProfiledSteps | None = None
        self._began = 0.0
        self._reported_running = ""
        self._queue = CaptureQueue(_QUEUE_CAPACITY)
        self._converter = TraceConverter()
        # Requests that the training thread has refused and the capture thread has not reported yet.
        self._refused: deque[tuple[CaptureRequest, str]] = deque()
        self._undecided: deque[CaptureRequest] = deque()  # another rank chooses their first step
        self._pace = StepPace()
        per_hour = self._limits.stacks_per_hour
        self._stacks = StackResponder(mailbox, lambda: position().rank, per_hour, failures)
        self._closing = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        if limits is not None and os.environ.get(VARIABLE, "").lower() != "off":
            thread = threading.Thread(target=self._run, name="sfapp-captures", daemon=True)
            self._thread = thread if start_or_note(thread, failures) else None

    # ---- training thread ------------------------------------------------------------------------

    def pass_step(self, step: int, window: int) -> None:
        """Start, continue or end a capture between two steps. Never raises."""
        try:
            if self._process != os.getpid():  # a forked child has no request of its own
                self._state.capture_due = NEVER
                return
            running = self._running
            if running is None:
                self._begin(step + 1)
            elif running.profiling.thread == threading.get_ident():
                self._continue(running, step, window)
        except Exception as error:  # fail-open
            self._fail(describe_error(error))

    def _begin(self, step: int) -> None:
        with self._lock:
            scheduled, self._scheduled, self._state.capture_due = self._scheduled, None, NEVER
        if scheduled is None:
            return
        if step != scheduled.first_step:
            self._refuse(scheduled.request, f"the rank had already reached step {step}")
            return
        profiling, rank = Profiling(self._state), self._position().rank
        self._running, self._began = ProfiledSteps(scheduled.request, profiling, rank), time.monotonic()
        try:
            profiling.start(step, self._stop_early)
        except CannotProfile as refusal:
            self._running = None
            self._refuse(scheduled.request, str(refusal))
            return
        self._budget.begin(scheduled.request.steps, self._began)
        self._state.capture_due = 0
        self._wake.set()

    def _continue(self, running: ProfiledSteps, step: int, window: int) -> None:
        profiling = running.profiling
        if step != profiling.step:
            self._end("the step numbers changed")
            return
        profiling.window_of[step] = window
        self._mark(step)
        if len(profiling.window_of) == running.request.steps:
            self._end("")
        elif time.monotonic() - self._began > self._limits.longest_seconds:
            self._end(f"it took longer than {self._limits.longest_seconds:g} s")
        else:
            profiling.next_step(step + 1)

    def _stop_early(self, why: str) -> None:
        """Stop in the middle of a step. Never raises, because training's own code calls it."""
        try:
            self._end(why)
        except Exception as error:  # fail-open
            self._fail(describe_error(error))

    def _end(self, why: str) -> None:
        """Stop the profiler and queue its trace; ``why`` explains fewer steps than requested."""
        running, self._running, self._state.capture_due = self._running, None, NEVER
        if running is None:
            return
        done, wanted = len(running.profiling.window_of), running.request.steps
        running.why = f"{done} of {wanted} steps: {why}" if why else ""
        request = running.request
        metadata = {
            "capture": request.id,
            "run_id": running.rank.job.run_id,
            "rank": running.rank.identity.rank,
            "windows": sorted(set(running.profiling.window_of.values())),
        }
        self._budget.end(0, time.monotonic())  # A request may arrive while the profiler stops.
        try:
            running.profiling.stop(metadata)
        except Exception as error:  # fail-open: the trace is lost
            done, why = 0, describe_error(error)
        self._budget.end(0, time.monotonic())
        if not done:
            self._refuse(request, why)
        elif not self._queue.put(running):
            self._refuse(request, "too many captures wait to be written")
        self._wake.set()

    def _fail(self, why: str) -> None:
        """Stop the profiler after an error, if possible, and report the failure."""
        running, self._running, self._state.capture_due = self._running, None, NEVER
        if running is None:
            return
        try:
            running.profiling.stop({})
        except Exception as error:  # fail-open: the profiler cannot be stopped
            self._failures.append(f"capture: {describe_error(error)}")
        self._refuse(running.request, why)

    def _refuse(self, request: CaptureRequest, why: str) -> None:
        """Queue a refusal for the capture thread to report."""
        self._refused.append((request, why))
        self._wake.set()

    def stop(self, why: str) -> None:
        """End the running capture because no step follows; ignored on threads other than the training
        thread."""
        running = self._running
        if running is not None and running.profiling.thread == threading.get_ident():
            self._stop_early(why)

    def close(self, seconds: float) -> None:
        """Write the queued captures within about ``seconds``, and end the thread."""
        if self._thread is None:
            return
        grace = min(seconds, _GRACE_SECONDS)
        self._converter.limit_time(grace)
        self._closing = True
        self._wake.set()
        self._thread.join(grace + 1.0)
        self._converter.limit_time(0)

    def leave(self) -> None:
        """End the child process because this process is about to end. Callable on any thread."""
        self._converter.limit_time(0)

    # ---- capture thread -------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            closing = self._closing
            try:
                if not closing:
                    self._poll()
                self._report_refused()
                while (profiled := self._queue.take()) is not None:
                    self._write(profiled)
                    self._report_refused()
            except Exception as error:  # fail-open: poll again later
                self._failures.append(f"capture: {describe_error(error)}")
            if closing:
                self._refuse_scheduled()
                self._stacks.close()
                return
            self._wake.wait(self._mailbox.poll_seconds(self._position().rank))
            self._wake.clear()

    def _poll(self) -> None:
        """Process new and waiting requests."""
        here = self._position()
        self._look()
        self._stacks.publish()
        self._pace.add(time.monotonic(), here.step)
        self._report_running()
        self._expire_scheduled()
        self._undecided.extend(self._mailbox.new_requests(here.rank))
        for _ in range(len(self._undecided)):
            request = self._undecided.popleft()
            if request.kind == "stacks":
                self._stacks.answer(request)
            else:
                self._schedule(request)
        self._stacks.answer_for_neighbours()

    def _schedule(self, request: CaptureRequest) -> None:
        if why := self._refusal(request):
            self._report(request, "expired" if self._is_late(request) else "refused", why)
            return
        warm_up()  # Before a step is chosen, because it takes seconds.
        here = self._position()
        first = self._first_step(here, request)
        if first == NOT_YET:
            self._undecided.append(request)
        elif first == NEVER_CHOSEN:
            choosing = min(request.ranks)
            self._report(request, "refused", f"rank {choosing} did not choose the first step")
        elif first <= here.step:
            self._report(request, "refused", f"the rank had already reached step {here.step}")
        else:
            self._report(request, "asked", first_step=first)
            with self._lock:
                self._scheduled = _ScheduledCapture(request, first, time.monotonic() + self._rest(request))
                self._state.capture_due = first

    def _refusal(self, request: CaptureRequest) -> str:
        if self._is_late(request):
            age = request.age_seconds()
            return f"the request is too old: {age:.0f} s by the clock of this rank's machine"
        if self._scheduled is not None or self._running is not None or len(self._queue):
            return "another capture is running"
        try:
            free = free_bytes(Path(tempfile.gettempdir()))
        except OSError as error:  # TMPDIR was removed. Without an answer, the request stays open.
            return f"there is no folder for temporary files: {describe_error(error)}"
        if free < FREE_BYTES:
            return f"less than {FREE_BYTES >> 20} MiB are free for temporary files"
        return self._budget.refusal(request.steps, time.monotonic())

    def _is_late(self, request: CaptureRequest) -> bool:
        return self._rest(request) < 0

    def _rest(self, request: CaptureRequest) -> float:
        """Return the seconds until a request expires, from when it was asked or, at the latest, from now."""
        return self._limits.expires_seconds - max(0.0, request.age_seconds())

    def _first_step(self, here: Position, request: CaptureRequest) -> int:
        """Return the requested first step, or the one that the lowest rank chooses.

        It is far enough ahead for the other ranks to receive it, with all steps in one window if possible.
        """
        if request.first_step is not None:
            return request.first_step
        if here.rank.identity.rank != min(request.ranks):
            return self._mailbox.first_step(here.rank, request)
        if len(request.ranks) == 1:
            first: int | None = here.step + 2
        else:
            first = self._pace.ahead(3 * self._mailbox.poll_seconds(here.rank) + 1)
        if first is None:
            return NOT_YET
        return first if first + request.steps <= here.window_end else max(first, here.window_end)

    def _expire_scheduled(self) -> None:
        """Report a scheduled request as expired if its step did not come in time."""
        scheduled = self._scheduled
        if scheduled is None or time.monotonic() <= scheduled.until:
            return
        with self._lock:
            if self._scheduled is not scheduled:
                return
            self._scheduled, self._state.capture_due = None, NEVER
        self._report(scheduled.request, "expired", f"step {scheduled.first_step} was not reached in time")

    def _refuse_scheduled(self) -> None:
        scheduled, self._scheduled = self._scheduled, None
        if scheduled is not None:
            self._report(scheduled.request, "refused", "the recorder was closed before the first step")

    def _report_running(self) -> None:
        running = self._running
        if running is not None and running.request.id != self._reported_running:
            self._reported_running = running.request.id
            self._report(running.request, "running")

    def _report_refused(self) -> None:
        while self._refused:
            request, why = self._refused.popleft()
            self._report(request, "refused", why)

    def _write(self, profiled: ProfiledSteps) -> None:
        profiling = profiled.profiling
        steps = list(profiling.window_of)
        about: dict[str, Any] = {
            "first_step": steps[0],
            "steps": len(steps),
            "windows": tuple(sorted(set(profiling.window_of.values()))),
            "stopped_ns": profiling.spent_ns,
        }
        try:
            with tempfile.TemporaryDirectory(prefix="sfapp-capture-", ignore_cleanup_errors=True) as name:
                root = self._mailbox.root(profiled.rank, Path(name))
                found = self._converter.convert(profiled, root, Path(name))
                self._mailbox.deliver(profiled.rank, profiled.request, about["windows"], root)
        except Exception as error:  # fail-open
            self._report(profiled.request, "refused", describe_error(error), **about)
            return
        self._budget.end(found.trace_bytes, time.monotonic())
        why = "; ".join(part for part in (profiled.why, found.why) if part)
        status: CaptureStatus = "done" if found.events else "refused"
        about.update(events=found.events, trace_bytes=found.trace_bytes)
        self._report(profiled.request, status, why, **about)

    def _report(self, request: CaptureRequest, status: CaptureStatus, why: str = "", **about: Any) -> None:
        rank = self._position().rank
        answer = RankCapture(rank=rank.identity.rank, status=status, why=why[:MAX_REASON])
        try:
            self._mailbox.report(rank, request, replace(answer, **about))
        except SfappError as error:
            self._failures.append(f"capture: {error}")
