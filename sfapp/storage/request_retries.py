"""Send requests to an object store again while their failure may pass, and report the reason."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sfapp.errors import PacketError, StorageError
from sfapp.storage.interruptible import interruptible
from sfapp.storage.object_errors import RequestFault, fault_of
from sfapp.storage.storage_options import StorageOptions

_LOG = logging.getLogger("sfapp")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0

_REPORT_EVERY_S = 5.0
"""Least time between two reports of one storage: when it is slow, many requests fail at the same time."""

Result = TypeVar("Result")


class RequestRetries:
    """Requests to one storage. Safe to use from several threads."""

    def __init__(self, options: StorageOptions, failures: tuple[type[Exception], ...]) -> None:
        """Start without any request.

        Args:
            failures: what a failed request raises.
        """
        self.options = options
        self._failures = failures
        self._secrets = options.secrets
        self._lock = threading.Lock()
        self._next_report = 0.0
        self._unreported = 0

    def run(self, shown: str, request: Callable[[], Result], *, of_object: bool = False) -> Result:
        """Return the result of a request, sent again if necessary.

        Args:
            shown: what it asks for, without credentials.
            of_object: whether it is for one object, whose refusal says nothing of the others.

        Raises:
            FileNotFoundError: there is no such object.
            PacketError: access to this object is refused.
            StorageError: it failed for another reason, and repeating it did not help.
        """
        attempts = self.attempts(shown, of_object=of_object)
        while True:
            try:
                return interruptible(request)
            except FileNotFoundError:
                raise
            except self._failures as error:
                attempts.fail(error)

    def attempts(self, shown: str, *, of_object: bool = False) -> RequestAttempts:
        """Return the attempts at one request; the arguments are those of ``run``."""
        return RequestAttempts(self, shown, of_object)

    def fault_of(self, error: Exception) -> RequestFault:
        """Return why a request failed, without the secrets of this storage."""
        return fault_of(error, self._secrets)

    def report(self, shown: str, fault: RequestFault, attempt: int, pause: float) -> None:
        """Log why a request is repeated, a few times a minute at most."""
        now = time.monotonic()
        with self._lock:
            if now < self._next_report:
                self._unreported += 1
                return
            self._next_report = now + _REPORT_EVERY_S
            more = f"; {self._unreported} other requests repeated before" if self._unreported else ""
            self._unreported = 0
        most = self.options.max_retries + 1
        text = "%s: %s; attempt %d of %d follows in %.1f s%s"
        _LOG.warning(text, shown, fault.reason, attempt + 1, most, pause, more)


class RequestAttempts:
    """Attempts at one request, or at the pages of one listing."""

    def __init__(self, requests: RequestRetries, shown: str, of_object: bool) -> None:
        self._requests = requests
        self._shown = shown
        self._of_object = of_object
        self.succeed()

    def succeed(self) -> None:
        """Count attempts anew, after a page of a listing has arrived."""
        self._failed = 0
        self._began = time.monotonic()

    def fail(self, error: Exception) -> None:
        """Wait before the next attempt.

        Raises:
            PacketError, StorageError: there is no next attempt, as in ``RequestRetries.run``.
        """
        fault = self._requests.fault_of(error)
        options = self._requests.options
        self._failed += 1
        elapsed = time.monotonic() - self._began
        if not fault.may_pass or self._failed > options.max_retries or elapsed > options.retry_timeout:
            if fault.is_refusal and self._of_object:
                raise PacketError(f"cannot be read: {fault.reason}", path=self._shown) from None
            tries = f" ({self._failed} attempts in {elapsed:.0f} s)" if self._failed > 1 else ""
            raise StorageError(f"{self._shown}: {fault.reason}{tries}") from None
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (self._failed - 1)) * random.uniform(0.5, 1.0)
        self._requests.report(self._shown, fault, self._failed, pause)
        time.sleep(pause)
