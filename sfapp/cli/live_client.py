"""Read the state of streaming runs for ``sfapp top`` from a folder of packets or from a running app."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from sfapp.errors import RemoteError, WindowNotFoundError
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.service.live import DOCUMENT_VERSION, LiveRunSnapshot, live_run_snapshot
from sfapp.service.live_address import LiveState
from sfapp.service.workspace import Workspace
from sfapp.store import Store

MAX_BYTES = 16 << 20
"""Size limit of an answer: a job of 16,000 ranks, at 1 kB per rank. Its objects may take 30 times as much."""

_ANSWER_SECONDS = 20.0
"""Time limit of a whole answer, however slowly the server sends it."""

_INGEST_SECONDS = 5.0

_Number = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)]
"""Number of a rank or node, -1 for an unknown one; the width of the drawing depends on its digits."""


class RankReport(msgspec.Struct):
    """One rank of a run: its node, the time since its last message, the duration of its newest steps."""

    rank: _Number
    node_rank: _Number
    has_left: bool
    no_data_for_s: float | None
    recent_ns: float | None


class LiveVerdict(msgspec.Struct):
    """The newest finished window in words, the rank that it names, and its severity."""

    summary: str
    aim_rank: int | None
    severity: float | None
    needs_attention: bool | None = None


class RollingFinding(msgspec.Struct):
    """The ranks that the rolling verdict names."""

    ranks: list[int]


class RollingReport(msgspec.Struct):
    """The verdict on the last steps, in words."""

    kind: str
    summary: str
    detail: Annotated[list[str], msgspec.Meta(max_length=64)]
    finding: RollingFinding | None = None


class StandstillReport(msgspec.Struct):
    """A standstill that lasts, in words, and the ranks that hold the job."""

    summary: str
    detail: Annotated[list[str], msgspec.Meta(max_length=64)]
    holders: list[int]


class RunReport(msgspec.Struct):
    """The present state of a run: the part of ``/live/<run>.json`` that a terminal shows.

    Attributes:
        summary: the state in words.
        silent: a sentence for each group of silent ranks.
        nodes: rows for ``NODE_COLUMNS``.
        rolling: None if the last steps are not known, or the app is an older one.
        standstill: None if the job does not stand still, or the app is an older one.
    """

    run: str
    state: str
    summary: str
    silent: Annotated[list[str], msgspec.Meta(max_length=4_096)]
    ranks: Annotated[list[RankReport], msgspec.Meta(max_length=1 << 17)]
    nodes: Annotated[list[dict[str, str | int | float | None]], msgspec.Meta(max_length=1 << 17)]
    newest_step: int | None
    newest_window: LiveVerdict | None
    rolling: RollingReport | None = None
    standstill: StandstillReport | None = None


class RunName(msgspec.Struct):
    """One of the runs in ``/live.json``."""

    run_id: str


class RunList(msgspec.Struct):
    """The part of ``/live.json`` that a terminal needs: the most recently active run first."""

    runs: list[RunName]


class StacksReport(msgspec.Struct):
    """Merged stacks as an app sends them; ``lines`` are the same as text."""

    run: str
    request: str
    asked_at: str
    asked_by: str
    reason: str
    is_over: bool
    stacks: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=1024)]
    shared_frames: int
    left_out: int
    missing: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=1024)]
    headline: str
    lines: Annotated[list[str], msgspec.Meta(max_length=65_536)]
    version: int = DOCUMENT_VERSION


class _VersionOnly(msgspec.Struct):
    version: int | None = None


_Answer = TypeVar("_Answer", bound=msgspec.Struct)


class LiveSource(Protocol):
    """Source of the state of runs.

    Attributes:
        place: the folder or the app's address, for messages.
    """

    place: str

    def latest(self, run_id: str | None) -> RunReport | None:
        """Return the state of a run, or of the most recently active one; None before there is any."""


class FolderSource:
    """Source that reads packets and samples in a folder at every call."""

    def __init__(self, store: Store, path: Path) -> None:
        self.place = str(path)
        self._workspace = Workspace(store, [path])
        self._snapshot: LiveRunSnapshot | None = None
        store.ingest()
        self._ingested_at = time.monotonic()

    def latest(self, run_id: str | None) -> RunReport | None:
        """Return the state of a run as ``LiveSource`` describes.

        Raises:
            WindowNotFoundError: the run was never streamed.
        """
        store = self._workspace.store
        if time.monotonic() - self._ingested_at > _INGEST_SECONDS:
            store.ingest()
            self._ingested_at = time.monotonic()
        else:
            store.follow()
        runs = store.live_runs()
        if run_id is None and not runs:
            return None
        run_id = run_id or runs[0]["run_id"]
        before = self._snapshot if self._snapshot is not None and self._snapshot.run_id == run_id else None
        self._snapshot = live_run_snapshot(self._workspace, run_id, LiveState(), before=before)
        return msgspec.convert(self._snapshot.document(), RunReport)


class AppSource:
    """Source that requests the data of a running app's live pages, from the address itself: redirects are not
    followed, and proxies of the environment are not used."""

    def __init__(self, address: str, token: str | None, answer_seconds: float = _ANSWER_SECONDS) -> None:
        """Parse the address; no request is sent yet.

        Args:
            address: as ``sfapp serve`` prints it, with or without the token.
            token: the app's token, if it has one.
            answer_seconds: time limit of each answer.

        Raises:
            RemoteError: it is no HTTP address.
        """
        try:
            parts = urlsplit(address)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise RemoteError(f"{address} is no address of an app: {error}") from error
        if parts.scheme not in ("http", "https") or not self._host:
            raise RemoteError(f"{address} is no address of an app; one looks like http://node0:8642")
        self.place = f"{parts.scheme}://{parts.netloc}"
        self._is_secure = parts.scheme == "https"
        self._token = token or dict(parse_qsl(parts.query)).get("token")
        self._answer_seconds = answer_seconds

    def latest(self, run_id: str | None) -> RunReport | None:
        """Return the state of a run as ``LiveSource`` describes.

        Raises:
            RemoteError: the server does not answer, rejects the token, or is no sfapp of this version.
            WindowNotFoundError: the run was never streamed there.
        """
        if run_id is None:
            runs = self._request("/live.json", RunList).runs
            if not runs:
                return None
            run_id = runs[0].run_id
        return self._request(f"/live/{quote(run_id, safe='')}.json?span=60", RunReport)

    def stacks(self, run_id: str | None, all_threads: bool) -> dict[str, Any]:
        """Return the newest stacks of a run, or of the most recently active one.

        Raises:
            RemoteError: as ``latest``.
            WindowNotFoundError: there are no stacks.
        """
        if run_id is None:
            runs = self._request("/live.json", RunList).runs
            if not runs:
                raise WindowNotFoundError(f"{self.place} has no streaming run: name the run")
            run_id = runs[0].run_id
        threads = "?all_threads=true" if all_threads else ""
        report = self._request(f"/stacks/{quote(run_id, safe='')}.json{threads}", StacksReport)
        found: dict[str, Any] = msgspec.to_builtins(report)
        return found

    def _request(self, path: str, kind: type[_Answer]) -> _Answer:
        try:
            status, body = self._answer(path)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise RemoteError(
                f"{self.place} does not answer ({error}): start `sfapp serve` or `sfapp run --ui` there, or "
                "forward its port from another machine with `ssh -L 8642:127.0.0.1:8642 HOST`"
            ) from error
        if status != 200:
            raise self._rejected(status, body[:4096])
        if len(body) > MAX_BYTES:
            raise RemoteError(
                f"{self.place} sends more than {MAX_BYTES >> 20} MiB: watch the job on its page"
            )
        try:
            self._check_version(msgspec.json.decode(body, type=_VersionOnly).version)
            return msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError as error:
            raise RemoteError(f"{self.place} does not answer as sfapp does: {error}") from error
        except UNREADABLE_JSON as error:
            raise RemoteError(f"{self.place} is no sfapp: its answer is not JSON") from error

    def _answer(self, path: str) -> tuple[int, bytes]:
        """Return status and body; of a longer body one byte more than the limit.

        Raises:
            OSError, ValueError, http.client.HTTPException: there is no complete answer in time.
        """
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._answer_seconds)
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.connect()
            with _cut_off(connection.sock, self._answer_seconds):
                connection.request("GET", path, headers=headers)
                with connection.getresponse() as answer:
                    return answer.status, answer.read(MAX_BYTES + 1)
        finally:
            connection.close()

    def _rejected(self, status: int, body: bytes) -> RemoteError | WindowNotFoundError:
        if status == 401:
            fault = "rejects this token" if self._token else "requires a token"
            return RemoteError(
                f"{self.place} {fault}: set --token or SFAPP_TOKEN to the one of `sfapp serve`"
            )
        try:
            message = msgspec.json.decode(body, type=dict[str, str])["error"]
        except (*UNREADABLE_JSON, KeyError):
            return RemoteError(
                f"{self.place} answers {status}: {body[:200].decode(errors='replace').strip()}"
            )
        return (WindowNotFoundError if status == 404 else RemoteError)(message)

    def _check_version(self, version: int | None) -> None:
        if version != DOCUMENT_VERSION:
            raise RemoteError(
                f"{self.place} has version {version or 'unknown'} of the live data and this sfapp version "
                f"{DOCUMENT_VERSION}: use the same sfapp on both sides"
            )


@contextmanager
def _cut_off(connection: socket.socket, seconds: float) -> Iterator[None]:
    """Shut a connection down once the time is over; the time limit of a socket is that of each read only.

    Raises:
        TimeoutError: the time was over.
    """
    is_over = threading.Event()

    def shut_down() -> None:
        is_over.set()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, shut_down)
    timer.daemon = True
    timer.start()
    late = f"no complete answer within {seconds:g} s"
    try:
        yield
    except (OSError, ValueError, http.client.HTTPException) as error:
        if is_over.is_set():
            raise TimeoutError(late) from error
        raise
    finally:
        timer.cancel()
    if is_over.is_set():
        raise TimeoutError(late)
