"""Read the state of streaming runs for ``sfapp top`` from a folder of packets or from a running app."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from sfapp.errors import RemoteError, WindowNotFoundError
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.service.live import DOCUMENT_VERSION, LiveRunSnapshot, live_run_snapshot
from sfapp.service.live_address import LiveState
from sfapp.service.workspace import Workspace
from sfapp.store import Store

MAX_BYTES = 1 << 26
_ANSWER_SECONDS = 10.0
_INGEST_SECONDS = 5.0


class RankReport(msgspec.Struct):
    """One rank of a run: its node, the time since its last message, the duration of its newest steps."""

    rank: int
    node_rank: int
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
    detail: list[str]
    finding: RollingFinding | None = None


class RunReport(msgspec.Struct):
    """The present state of a run: the part of ``/live/<run>.json`` that a terminal shows.

    Attributes:
        summary: the state in words.
        silent: a sentence for each group of silent ranks.
        nodes: rows for ``NODE_COLUMNS``.
        rolling: None if the last steps are not known, or the app is an older one.
    """

    run: str
    state: str
    summary: str
    silent: list[str]
    ranks: list[RankReport]
    nodes: list[dict[str, Any]]
    newest_step: int | None
    newest_window: LiveVerdict | None
    rolling: RollingReport | None = None


class RunName(msgspec.Struct):
    """One of the runs in ``/live.json``."""

    run_id: str


class RunList(msgspec.Struct):
    """The part of ``/live.json`` that a terminal needs: the most recently active run first."""

    runs: list[RunName]


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
    """Source that requests the data of a running app's live pages."""

    def __init__(self, address: str, token: str | None) -> None:
        """Parse the address; no request is sent yet.

        Args:
            address: as ``sfapp serve`` prints it, with or without the token.
            token: the app's token, if it has one.

        Raises:
            RemoteError: it is no HTTP address.
        """
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RemoteError(f"{address} is no address of an app; one looks like http://node0:8642")
        self.place = f"{parts.scheme}://{parts.netloc}"
        self._token = token or dict(parse_qsl(parts.query)).get("token")

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

    def _request(self, path: str, kind: type[_Answer]) -> _Answer:
        request = urllib.request.Request(self.place + path, headers={"Accept": "application/json"})
        if self._token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                body = answer.read(MAX_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise self._rejected(error.code, error.read(4096)) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise RemoteError(
                f"{self.place} does not answer ({reason}): start `sfapp serve` or `sfapp run --ui` there, or "
                "forward its port from another machine with `ssh -L 8642:127.0.0.1:8642 HOST`"
            ) from error
        try:
            return msgspec.convert(self._decoded(body), kind)
        except msgspec.ValidationError as error:
            raise RemoteError(f"{self.place} does not answer as sfapp does: {error}") from error

    def _rejected(self, status: int, body: bytes) -> RemoteError | WindowNotFoundError:
        if status == 401:
            fault = "rejects this token" if self._token else "requires a token"
            return RemoteError(
                f"{self.place} {fault}: set --token or SFAPP_TOKEN to the one of `sfapp serve`"
            )
        try:
            message = str(msgspec.json.decode(body)["error"])
        except (*UNREADABLE_JSON, KeyError, TypeError):
            return RemoteError(
                f"{self.place} answers {status}: {body[:200].decode(errors='replace').strip()}"
            )
        return (WindowNotFoundError if status == 404 else RemoteError)(message)

    def _decoded(self, body: bytes) -> dict[str, Any]:
        try:
            answer = msgspec.json.decode(body, type=dict[str, Any])
        except UNREADABLE_JSON as error:
            raise RemoteError(f"{self.place} is no sfapp: its answer is not JSON") from error
        version = answer.get("version")
        if version != DOCUMENT_VERSION:
            raise RemoteError(
                f"{self.place} has version {version or 'unknown'} of the live data and this sfapp version "
                f"{DOCUMENT_VERSION}: use the same sfapp on both sides"
            )
        return answer
