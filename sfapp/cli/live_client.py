"""What ``sfapp top`` draws, and where it is from: a folder of packets, or an app that serves them."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from sfapp.errors import RemoteError, WindowNotFoundError
from sfapp.service.live import DOCUMENT_VERSION, LiveRunSnapshot, LiveState, live_run_snapshot
from sfapp.service.workspace import Workspace
from sfapp.store import Store

MOST_BYTES = 1 << 26
_ANSWER_SECONDS = 10.0
_INGEST_SECONDS = 5.0


class RankNews(msgspec.Struct):
    """One rank of a run: where it is, how long nothing was heard of it, how long its newest steps took."""

    rank: int
    node_rank: int
    has_left: bool
    no_data_for_s: float | None
    recent_ns: float | None


class Verdict(msgspec.Struct):
    """The newest finished window in words, and whom it names."""

    said: str
    aim_rank: int | None
    severity: float | None


class RunNews(msgspec.Struct):
    """A run now; the part of ``/live/<run>.json`` that a terminal shows.

    Attributes:
        nodes: rows as ``NODE_COLUMNS`` shows them.
    """

    run: str
    state: str
    said: str
    silent: list[str]
    ranks: list[RankNews]
    nodes: list[dict[str, Any]]
    newest_step: int | None
    newest_window: Verdict | None


class RunName(msgspec.Struct):
    """One of the runs that are streamed."""

    run_id: str


class RunList(msgspec.Struct):
    """The part of ``/live.json`` that a terminal needs: the one heard of last comes first."""

    runs: list[RunName]


_Answer = TypeVar("_Answer", bound=msgspec.Struct)


class Source(Protocol):
    """Where news of runs is from."""

    def news(self, run_id: str | None) -> RunNews | None:
        """Of one run, or of the one heard of last; None before there is any."""


class FolderSource:
    """Packets in a folder, read anew at every question."""

    def __init__(self, store: Store, path: Path) -> None:
        self._workspace = Workspace(store, [path])
        self._scene: LiveRunSnapshot | None = None
        store.ingest()
        self._ingested = time.monotonic()

    def news(self, run_id: str | None) -> RunNews | None:
        """As ``Source``.

        Raises:
            WindowNotFoundError: the run was never streamed.
        """
        store = self._workspace.store
        if time.monotonic() - self._ingested > _INGEST_SECONDS:
            store.ingest()
            self._ingested = time.monotonic()
        else:
            store.follow()
        runs = store.live_runs()
        if run_id is None and not runs:
            return None
        run_id = run_id or runs[0]["run_id"]
        before = self._scene if self._scene is not None and self._scene.run_id == run_id else None
        self._scene = live_run_snapshot(self._workspace, run_id, LiveState(), before=before)
        return msgspec.convert(self._scene.document(), RunNews)


class AppSource:
    """An app that runs, by its address; asks for the same that its pages have as data."""

    def __init__(self, address: str, token: str | None) -> None:
        """Nothing is asked yet.

        Args:
            address: as ``sfapp serve`` printed it, with its token too.
            token: the app's, if it has one.

        Raises:
            RemoteError: no address of an app.
        """
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RemoteError(f"{address} is no address of an app: give one as in http://node0:8642")
        self._address = f"{parts.scheme}://{parts.netloc}"
        self._token = token or dict(parse_qsl(parts.query)).get("token")

    def news(self, run_id: str | None) -> RunNews | None:
        """As ``Source``.

        Raises:
            RemoteError: nobody answers, the token is wrong, or it is no app of this version.
            WindowNotFoundError: the run was never streamed there.
        """
        if run_id is None:
            runs = self._ask("/live.json", RunList).runs
            if not runs:
                return None
            run_id = runs[0].run_id
        return self._ask(f"/live/{quote(run_id, safe='')}.json?span=60", RunNews)

    def _ask(self, path: str, kind: type[_Answer]) -> _Answer:
        request = urllib.request.Request(self._address + path, headers={"Accept": "application/json"})
        if self._token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                body = answer.read(MOST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code, error.read(4096)) from error
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", error)
            raise RemoteError(
                f"nobody answers at {self._address} ({why}): is `sfapp serve`, or `sfapp run --ui`, running "
                "there? From another machine it is reached by `ssh -L 8642:127.0.0.1:8642 host`"
            ) from error
        try:
            return msgspec.convert(self._understood(body), kind)
        except msgspec.ValidationError as error:
            raise RemoteError(f"{self._address} does not answer as an sfapp does: {error}") from error

    def _refused(self, status: int, body: bytes) -> RemoteError | WindowNotFoundError:
        if status == 401:
            given = "does not take this token" if self._token else "asks for its token"
            return RemoteError(f"{self._address} {given}: --token, or SFAPP_TOKEN, as `sfapp serve` has it")
        try:
            said = str(msgspec.json.decode(body)["error"])
        except (msgspec.DecodeError, KeyError, TypeError):
            return RemoteError(
                f"{self._address} answers {status}: {body[:200].decode(errors='replace').strip()}"
            )
        return (WindowNotFoundError if status == 404 else RemoteError)(said)

    def _understood(self, body: bytes) -> dict[str, Any]:
        try:
            answer = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise RemoteError(f"{self._address} is no sfapp: what it answers is no JSON") from error
        version = answer.get("version")
        if version != DOCUMENT_VERSION:
            raise RemoteError(
                f"{self._address} speaks version {version or 'unknown'} of what is live, this sfapp version "
                f"{DOCUMENT_VERSION}: use the same sfapp on both sides"
            )
        return answer
