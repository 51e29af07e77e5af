"""Captures on a rank: hears of requests, runs the profiler for exactly the steps asked for, tells what came.

A thread of its own looks for requests and writes down what was seen. On training's path there is one
comparison a step, ``StepState.capture_due``. Ranks agree on nothing: each starts at a step's number. Whatever
goes wrong here is said in the capture's state, and training goes on.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sfapp.errors import SfappError, describe_error
from sfapp.model.capture import MAX_REASON, CaptureLimits, CaptureRequest, CaptureStatus, RankCapture
from sfapp.packets.capture_mailbox import NEVER_CHOSEN, NOT_YET, CaptureMailbox, StepPace
from sfapp.packets.job import JobRank
from sfapp.recorder.capture.budget import Budget
from sfapp.recorder.capture.profiler import CannotProfile, Profiling, warm_up
from sfapp.recorder.capture.trace_converter import FREE_BYTES, Captured, Converter, Ring, free_bytes
from sfapp.recorder.timing.timers import NEVER, StepState

VARIABLE = "SFAPP_CAPTURES"
"""Environment variable that turns captures off where it is ``off``."""

_ROOM = 2
"""Captures that may wait to be written down."""

_GRACE_SECONDS = 15.0
"""How long closing waits at most for a trace to be read."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a recorder is.

    Attributes:
        step: number of the step under way, or of the next one.
        window_end: the step that the next window begins with.
    """

    team: JobRank
    step: int
    window_end: int


@dataclass(frozen=True, slots=True)
class _Armed:
    """A request that waits for its first step."""

    request: CaptureRequest
    first_step: int


class Captures:
    """A recorder's captures. ``pass_step`` is called on training's thread, between steps.

    Args:
        mailbox: where captures are asked for and answered.
        where: where the recorder is; called on this object's thread.
        mark: puts a mark beside a step that has just been recorded.
        limits: what is allowed; None allows nothing, and there is no thread.
        failures: what goes wrong beside a capture is put there.
    """

    def __init__(
        self,
        state: StepState,
        mailbox: CaptureMailbox,
        where: Callable[[], Position],
        mark: Callable[[int], None],
        limits: CaptureLimits | None,
        failures: deque[str],
    ) -> None:
        self._process = os.getpid()
        self._state = state
        self._mailbox = mailbox
        self._where = where
        self._mark = mark
        self._failures = failures
        self._limits = limits or CaptureLimits()
        self._budget = Budget(self._limits)
        self._lock = threading.Lock()  # who takes an armed request: training, or the thread that gives it up
        self._armed: _Armed | None = None
        self._running: Captured | None = None
        self._began = 0.0
        self._told_running = ""
        self._ring = Ring(_ROOM)
        self._converter = Converter()
        self._over: deque[tuple[CaptureRequest, str]] = deque()  # refused on training's thread, not told yet
        self._undecided: deque[CaptureRequest] = deque()  # another rank is to choose their first step
        self._pace = StepPace()
        self._closing = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        if limits is not None and os.environ.get(VARIABLE, "").lower() != "off":
            self._thread = threading.Thread(target=self._run, name="sfapp-captures", daemon=True)
            self._thread.start()

    # ---- training's thread ----------------------------------------------------------------------

    def pass_step(self, step: int, window: int) -> None:
        """A step of a window has ended, the next has not begun. Never raises."""
        try:
            if self._process != os.getpid():  # a forked child has no request of its own
                self._state.capture_due = NEVER
                return
            running = self._running
            if running is None:
                self._begin(step + 1)
            elif running.profiling.thread == threading.get_ident():
                self._follow(running, step, window)
        except Exception as error:  # fail-open
            self._abandon(describe_error(error))

    def _begin(self, step: int) -> None:
        with self._lock:
            armed, self._armed, self._state.capture_due = self._armed, None, NEVER
        if armed is None:
            return
        if step != armed.first_step:
            self._refuse(armed.request, f"the rank had come to step {step} already")
            return
        profiling, team = Profiling(self._state), self._where().team
        self._running, self._began = Captured(armed.request, profiling, team), time.monotonic()
        try:
            profiling.start(step, self._give_way)
        except CannotProfile as refusal:
            self._running = None
            self._refuse(armed.request, str(refusal))
            return
        self._budget.begin(armed.request.steps, self._began)
        self._state.capture_due = 0
        self._wake.set()

    def _follow(self, running: Captured, step: int, window: int) -> None:
        profiling = running.profiling
        if step != profiling.step:
            self._end("the run went on with other step numbers")
            return
        profiling.window_of[step] = window
        self._mark(step)
        if len(profiling.window_of) == running.request.steps:
            self._end("")
        elif time.monotonic() - self._began > self._limits.longest_seconds:
            self._end(f"it took more than {self._limits.longest_seconds:g} s")
        else:
            profiling.go_on(step + 1)

    def _give_way(self, why: str) -> None:
        """Stop in the middle of a step. Never raises: it is training's own code that waits."""
        try:
            self._end(why)
        except Exception as error:  # fail-open
            self._abandon(describe_error(error))

    def _end(self, why: str) -> None:
        """Stop the profiler; of fewer steps than asked for, say why."""
        running, self._running, self._state.capture_due = self._running, None, NEVER
        if running is None:
            return
        done, wanted = len(running.profiling.window_of), running.request.steps
        running.why = f"{done} of {wanted} steps: {why}" if why else ""
        request = running.request
        about = {
            "capture": request.id,
            "run_id": running.team.job.run_id,
            "rank": running.team.identity.rank,
            "windows": sorted(set(running.profiling.window_of.values())),
        }
        try:
            running.profiling.stop(about)
        except Exception as error:  # fail-open: what it saw is lost
            done, why = 0, describe_error(error)
        self._budget.end(0, time.monotonic())
        if not done:
            self._refuse(request, why)
        elif not self._ring.put(running):
            self._refuse(request, "others wait to be written down already")
        self._wake.set()

    def _abandon(self, why: str) -> None:
        """The profiler is in trouble: stop it if it can be, and say so."""
        running, self._running, self._state.capture_due = self._running, None, NEVER
        if running is None:
            return
        try:
            running.profiling.stop({})
        except Exception as error:  # fail-open: nothing more can be done about it
            self._failures.append(f"capture: {describe_error(error)}")
        self._refuse(running.request, why)

    def _refuse(self, request: CaptureRequest, why: str) -> None:
        """To be told by the other thread."""
        self._over.append((request, why))
        self._wake.set()

    def stop(self, why: str) -> None:
        """No further step comes: end what runs, if this is the thread that may."""
        running = self._running
        if running is not None and running.profiling.thread == threading.get_ident():
            self._give_way(why)

    def close(self, seconds: float) -> None:
        """Write down what waits within ``seconds`` and little more, and end the thread."""
        if self._thread is None:
            return
        grace = min(seconds, _GRACE_SECONDS)
        self._converter.hurry(grace)
        self._closing = True
        self._wake.set()
        self._thread.join(grace + 1.0)
        self._converter.hurry(0)

    def leave(self) -> None:
        """The process is about to end, on whatever thread this is called: leave no other behind."""
        self._converter.hurry(0)

    # ---- the other thread -----------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            closing = self._closing
            try:
                if not closing:
                    self._look()
                self._tell_over()
                while (captured := self._ring.take()) is not None:
                    self._write_down(captured)
                    self._tell_over()
            except Exception as error:  # fail-open: look again later
                self._failures.append(f"capture: {describe_error(error)}")
            if closing:
                self._drop_armed()
                return
            self._wake.wait(self._mailbox.poll_seconds(self._where().team))
            self._wake.clear()

    def _look(self) -> None:
        """Take up what is asked for anew."""
        here = self._where()
        self._pace.add(time.monotonic(), here.step)
        self._tell_running()
        self._give_up_late()
        self._undecided.extend(self._mailbox.new_requests(here.team))
        for _ in range(len(self._undecided)):
            self._take_up(self._undecided.popleft())

    def _take_up(self, request: CaptureRequest) -> None:
        if why := self._refusal(request):
            self._tell(request, "expired" if self._is_late(request) else "refused", why)
            return
        warm_up()  # before a step is chosen: that must not come meanwhile
        here = self._where()
        first = self._first_step(here, request)
        if first == NOT_YET:
            self._undecided.append(request)
        elif first == NEVER_CHOSEN:
            chooses = min(request.ranks)
            self._tell(request, "refused", f"rank {chooses}, which was to choose the first step, did not")
        elif first <= here.step:
            self._tell(request, "refused", f"the rank had come to step {here.step} already")
        else:
            self._tell(request, "asked", first_step=first)
            with self._lock:
                self._armed = _Armed(request, first)
                self._state.capture_due = first

    def _refusal(self, request: CaptureRequest) -> str:
        if self._is_late(request):
            return "it was asked for too long ago"
        if self._armed is not None or self._running is not None or len(self._ring):
            return "another capture is under way"
        if free_bytes(Path(tempfile.gettempdir())) < FREE_BYTES:
            return f"less than {FREE_BYTES >> 20} MiB are free for temporary files"
        return self._budget.refusal(request.steps, time.monotonic())

    def _is_late(self, request: CaptureRequest) -> bool:
        age = (datetime.now(UTC) - request.asked_at).total_seconds()
        return age > self._limits.expires_seconds

    def _first_step(self, here: Position, request: CaptureRequest) -> int:
        """As asked; or what the lowest rank chooses: far enough ahead for the others to hear of it, and all
        steps in one window."""
        if request.first_step is not None:
            return request.first_step
        if here.team.identity.rank != min(request.ranks):
            return self._mailbox.first_step(here.team, request)
        if len(request.ranks) == 1:
            first: int | None = here.step + 2
        else:
            first = self._pace.ahead(3 * self._mailbox.poll_seconds(here.team) + 1)
        if first is None:
            return NOT_YET
        return first if first + request.steps <= here.window_end else max(first, here.window_end)

    def _give_up_late(self) -> None:
        """What has not begun in time does not begin."""
        armed = self._armed
        if armed is None or not self._is_late(armed.request):
            return
        with self._lock:
            if self._armed is not armed:
                return
            self._armed, self._state.capture_due = None, NEVER
        self._tell(armed.request, "expired", f"step {armed.first_step} did not come in time")

    def _drop_armed(self) -> None:
        armed, self._armed = self._armed, None
        if armed is not None:
            self._tell(armed.request, "refused", "the recorder was closed before")

    def _tell_running(self) -> None:
        running = self._running
        if running is not None and running.request.id != self._told_running:
            self._told_running = running.request.id
            self._tell(running.request, "running")

    def _tell_over(self) -> None:
        while self._over:
            request, why = self._over.popleft()
            self._tell(request, "refused", why)

    def _write_down(self, captured: Captured) -> None:
        profiling = captured.profiling
        steps = list(profiling.window_of)
        about: dict[str, Any] = {
            "first_step": steps[0],
            "steps": len(steps),
            "windows": tuple(sorted(set(profiling.window_of.values()))),
            "stopped_ns": profiling.spent_ns,
        }
        folder = Path(tempfile.mkdtemp(prefix="sfapp-capture-"))
        try:
            root = self._mailbox.root(captured.team, folder)
            found = self._converter.convert(captured, root, folder)
            self._mailbox.deliver(captured.team, captured.request, about["windows"], root)
        except Exception as error:  # fail-open
            self._tell(captured.request, "refused", describe_error(error), **about)
            return
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._budget.end(found.trace_bytes, time.monotonic())
        why = "; ".join(part for part in (captured.why, found.why) if part)
        status: CaptureStatus = "done" if found.events else "refused"
        about.update(events=found.events, trace_bytes=found.trace_bytes)
        self._tell(captured.request, status, why, **about)

    def _tell(self, request: CaptureRequest, status: CaptureStatus, why: str = "", **about: Any) -> None:
        team = self._where().team
        said = RankCapture(rank=team.identity.rank, status=status, why=why[:MAX_REASON])
        try:
            self._mailbox.report(team, request, replace(said, **about))
        except SfappError as error:
            self._failures.append(f"capture: {error}")
