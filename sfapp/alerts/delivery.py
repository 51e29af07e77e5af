"""Notify each target of what it does not know, on a thread of its own, so that none waits for another."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sfapp.alerts.alert_state import AlertState
from sfapp.alerts.changes import Known, changes_since
from sfapp.alerts.message import AlertMessage, message_of
from sfapp.alerts.pauses import Pauses
from sfapp.alerts.sources import AlertSource
from sfapp.alerts.targets import AlertTarget
from sfapp.errors import DeliveryError, RemoteError, StorageError, describe_error
from sfapp.service.problems import ListedProblem

ATTEMPTS = 3
"""Number of attempts to deliver a message before the target rests."""

RETRY_SECONDS = 1.0
"""Pause before the second attempt; four times as long before the third one."""

REST_SECONDS, LONGEST_REST_SECONDS = 30.0, 900.0
"""How long a target rests after failed attempts, doubled with each failure. It is then sent a message about
all that it does not know."""

_LOG = logging.getLogger("sfapp")

Report = Callable[[str], None]
"""Function that shows one line to the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertOptions:
    """When and how messages are sent.

    Attributes:
        interval: shortest time between two messages to a target, seconds; what happens meanwhile is sent
            together.
        link_base: address of the app that shows problems; None for messages without links.
        once: whether nothing is sent after the first message, for the words of a failure.
    """

    interval: float = 60.0
    pauses: Pauses = field(default_factory=Pauses)
    link_base: str | None = None
    once: bool = False


class TargetQueue:
    """One target, and what it knows. ``consider`` and ``close`` are called on one thread."""

    def __init__(
        self,
        target: AlertTarget,
        state: AlertState,
        options: AlertOptions,
        stop: threading.Event,
        report: Report,
    ) -> None:
        self.target = target
        self.failures = 0
        self._state = state
        self._options = options
        self._stop = stop
        self._report = report
        self._due = 0.0
        self._is_saved = True
        self._thread = ThreadPoolExecutor(1, "sfapp-alerts")
        self._delivery: Future[None] | None = None

    def consider(self, present: Sequence[ListedProblem], now: datetime) -> None:
        """Send a message if the target does not know something, unless it has to wait."""
        if self._delivery is not None and not self._delivery.done():
            return
        if time.monotonic() < self._due or self._options.pauses.hold_at(now):
            return
        try:
            known = self._state.known_by(self.target.text)
            changes, after = changes_since(known, present, now.timestamp())
            if not changes:
                self._keep(after)
                return
            message = message_of(changes, now, self._options.link_base)
            self._delivery = self._thread.submit(self._deliver, message, after)
        except Exception as error:  # noqa: BLE001  # Else no later problem would be reported.
            self._rest(error)

    def close(self) -> None:
        """Wait for the message that is being sent."""
        self._thread.shutdown(wait=True)

    def _deliver(self, message: AlertMessage, after: Known) -> None:
        try:
            send(self.target, message, self._stop)
        except Exception as error:  # noqa: BLE001  # Else no later problem would be reported.
            self._rest(error)
            return
        self.failures = 0
        self._due = time.monotonic() + self._options.interval
        self._report(f"sent to {self.target.name}: {message.title.removeprefix('sfapp: ')}")
        self._keep(after)

    def _rest(self, error: Exception) -> None:
        """Report that nothing was sent, and why; log an unexpected error."""
        rest = min(REST_SECONDS * 2**self.failures, LONGEST_REST_SECONDS)
        self.failures += 1
        self._due = time.monotonic() + rest
        reason = str(error)
        if not isinstance(error, DeliveryError):
            reason = describe_error(error)
            _LOG.error("a message could not be sent, and is tried again", exc_info=error)
        later = "the next call tries again" if self._options.once else f"next attempt in {rest:g} s"
        self._report(f"not sent: {reason}; {later}")

    def _keep(self, after: Known) -> None:
        """Write what the target knows; report once that it cannot be written, and that it can again."""
        try:
            self._state.keep(self.target.text, after)
        except OSError as error:
            if self._is_saved:
                self._report(
                    f"the state cannot be written ({error}): what {self.target.name} has received is sent "
                    "again after a restart"
                )
            self._is_saved = False
        else:
            if not self._is_saved:
                self._report(f"the state is written again, with what {self.target.name} has received")
            self._is_saved = True


def send(target: AlertTarget, message: AlertMessage, stop: threading.Event) -> None:
    """Deliver a message, with a bounded number of attempts.

    Args:
        stop: ends the pauses between attempts.

    Raises:
        DeliveryError: no attempt was accepted.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            target.send(message)
            return
        except DeliveryError as error:
            is_last = error.is_final or attempt == ATTEMPTS
            if is_last or stop.wait(RETRY_SECONDS * 4 ** (attempt - 1)):
                raise


def notify_once(stop: threading.Event, source: AlertSource, queues: Sequence[TargetQueue]) -> bool:
    """Notify all targets of the present problems; return whether all have accepted it.

    Args:
        stop: ends the wait for the problems.

    Raises:
        SfappError: the problems cannot be read.
    """
    present = source.problems(stop)
    for queue in queues:
        if present is not None:
            queue.consider(present, datetime.now(UTC))
        queue.close()
    return present is not None and not any(queue.failures for queue in queues)


def notify_until(
    stop: threading.Event, source: AlertSource, queues: Sequence[TargetQueue], report: Report
) -> None:
    """Notify all targets whenever problems have changed, until stopped.

    Raises:
        SfappError: the problems cannot be read, and that will not pass.
    """
    is_silent = False
    present: list[ListedProblem] | None = None
    while not stop.is_set():
        try:
            present = source.problems(stop)
            if is_silent and not stop.is_set():
                report(f"{source.place} answers again")
            is_silent = False
        except (RemoteError, StorageError) as error:  # It may be restarted, or be reached again.
            if not is_silent:
                report(f"{error}; it is asked again until it answers")
            is_silent, present = True, None
        for queue in queues:
            if present is not None:
                queue.consider(present, datetime.now(UTC))
        source.wait(stop)
    for queue in queues:
        queue.close()
