"""Where problems come from: packets in a folder or a bucket, or a running app."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Protocol
from urllib.parse import quote

import msgspec

from sfapp.errors import (
    AlertError,
    IncidentError,
    RemoteError,
    SfappError,
    StorageError,
    WindowNotFoundError,
)
from sfapp.model.problems import Problem, ProblemMark, ProblemStatus
from sfapp.model.stages import MAX_NAME_LENGTH
from sfapp.service.app_client import AppClient
from sfapp.service.problems import ListedProblem, listed
from sfapp.service.workspace import Workspace
from sfapp.storage import RequestPool, StoragePath
from sfapp.store import Store

FOLDER_SECONDS = 10.0
"""Longest time between two looks at a folder's problems: a mute may have ended."""

BUCKET_PAUSE_SECONDS = 10.0
"""Time until a bucket that could not be read is read again."""

APP_SECONDS = 2.0
"""Time between two requests to an app."""

_STOP_SECONDS = 0.25
"""Longest time until a source notices that it is to stop."""


class AlertSource(Protocol):
    """Source of the present problems.

    Attributes:
        place: the folder or the app's address, for messages. link_base: address of the app, if it is one.
    """

    place: str
    link_base: str | None

    def problems(self, stop: threading.Event | None = None) -> list[ListedProblem] | None:
        """Return the present problems, the costliest first; None if they are not all read yet.

        Args:
            stop: whether to wait no longer for an app that does not answer.

        Raises:
            SfappError: they cannot be read now.
        """

    def wait(self, stop: threading.Event) -> None:
        """Return once problems may have changed, or ``stop`` is set."""


class FolderProblems:
    """Problems of the packets in a folder or a bucket, as the app shows them."""

    link_base: str | None = None

    def __init__(self, store: Store, path: StoragePath, run_id: str | None) -> None:
        """Start with what the store holds; ``open`` also reads the folder."""
        self.place = str(path)
        self._workspace = Workspace(store, [path])
        self._run_id = run_id
        self._changed = threading.Event()
        self._fault: Exception | None = None

    @classmethod
    @contextmanager
    def open(
        cls, path: StoragePath, run_id: str | None, follows: bool, cancel: threading.Event | None = None
    ) -> Iterator[FolderProblems]:
        """Read a folder and, if asked, follow it on another thread within the block.

        Args:
            cancel: set it to stop reading early; its problems are then not all known.

        Raises:
            StoreError: it cannot be read.
        """
        with Store.open([path], memory=True) as store:
            source = cls(store, path, run_id)
            store.ingest(cancel=cancel)
            stop = threading.Event()
            thread = threading.Thread(target=source._follow, args=(stop,), name="sfapp-watch", daemon=True)
            if follows:
                thread.start()
            try:
                yield source
            finally:
                stop.set()
                if follows:
                    thread.join()
                source._workspace.close()

    def problems(self, stop: threading.Event | None = None) -> list[ListedProblem]:
        """Return the present problems (``AlertSource.problems``)."""
        if self._fault is not None:
            raise self._fault
        self._changed.clear()
        found = self._workspace.problems(self._run_id)
        try:
            return listed(found, self._workspace.incident_log.state())
        except IncidentError as error:
            # It may be readable again soon. Until then nothing is known to be muted, and nothing is sent.
            raise StorageError(str(error)) from error

    def wait(self, stop: threading.Event) -> None:
        """Wait for a change of the folder (``AlertSource.wait``)."""
        deadline = time.monotonic() + FOLDER_SECONDS
        while not stop.is_set() and time.monotonic() < deadline and not self._changed.wait(_STOP_SECONDS):
            pass

    def _follow(self, stop: threading.Event) -> None:
        fault: Exception = AlertError(f"{self.place} is not followed any more")
        try:
            while not stop.is_set():
                try:
                    if self._fault is not None:
                        self._workspace.store.ingest(cancel=stop)
                        self._fault = None
                        self._changed.set()
                    self._workspace.store.watch(stop, lambda _: self._changed.set())
                except StorageError as error:  # A bucket cannot be reached for a while.
                    self._fault = error
                    self._changed.set()
                    stop.wait(BUCKET_PAUSE_SECONDS)
        except (SfappError, OSError) as error:
            fault = error
        finally:
            self._fault = fault
            self._changed.set()


_Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_LENGTH)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReportedProblem(Problem):
    """A problem in an app's answer, with names as long as those in packets: targets' states keep them."""

    id: _Name
    run_id: _Name
    status: ProblemStatus
    mark: ProblemMark | None = None


class _Answer(msgspec.Struct):
    problems: Annotated[Sequence[_ReportedProblem], msgspec.Meta(max_length=1 << 20)]


class _Health(msgspec.Struct):
    store: str


class AppProblems:
    """Problems that a running app reports in ``/problems.json``."""

    def __init__(self, address: str, token: str | None, run_id: str | None) -> None:
        """Parse the address; no request is sent yet.

        Raises:
            RemoteError: it is no address of an app.
        """
        self._client = AppClient(address, token)
        self.place = self._client.place
        self.link_base: str | None = self.place
        self._query = "" if run_id is None else f"?run={quote(run_id, safe='')}"
        self._requests = RequestPool(1)

    def problems(self, stop: threading.Event | None = None) -> list[ListedProblem] | None:
        """Return the present problems (``AlertSource.problems``)."""
        answer = self._requests.submit(self._ask)
        while not wait([answer], _STOP_SECONDS).done:
            if stop is not None and stop.is_set():
                return None  # The thread is left behind with its request.
        return answer.result()

    def _ask(self) -> list[ListedProblem] | None:
        try:
            if self._client.get("/healthz", _Health).store == "reading":
                return None
            answer = self._client.get(f"/problems.json{self._query}", _Answer)
        except WindowNotFoundError as error:
            # Every app has both; a proxy answers so while the app is restarted.
            raise RemoteError(f"{self.place} answers 404: {error}") from error
        return [ListedProblem(each, each.status, each.mark) for each in answer.problems]

    def wait(self, stop: threading.Event) -> None:
        """Wait until the next request is due (``AlertSource.wait``)."""
        stop.wait(APP_SECONDS)
