"""Read the state of streaming runs for ``sfapp top`` from a folder of packets or from a running app."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from sfapp.errors import WindowNotFoundError
from sfapp.service.app_client import ANSWER_SECONDS, AppClient
from sfapp.service.live import DOCUMENT_VERSION, LiveRunSnapshot, live_run_snapshot
from sfapp.service.live_address import LiveState
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from sfapp.views.address import path_segment

_INGEST_SECONDS = 5.0

_STATE = LiveState(span=60)
"""The span over which both sources read steps, whose means would differ otherwise."""

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
        self._snapshot = live_run_snapshot(self._workspace, run_id, _STATE, before=before)
        return msgspec.convert(self._snapshot.document(), RunReport)


class AppSource:
    """Source that requests the data of a running app's live pages."""

    def __init__(self, address: str, token: str | None, answer_seconds: float = ANSWER_SECONDS) -> None:
        """Parse the address; arguments and errors are those of ``AppClient``."""
        self._client = AppClient(address, token, answer_seconds)
        self.place = self._client.place

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
        return self._request(f"/live/{path_segment(run_id)}.json?span={_STATE.span}", RunReport)

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
        report = self._request(f"/stacks/{path_segment(run_id)}.json{threads}", StacksReport)
        found: dict[str, Any] = msgspec.to_builtins(report)
        return found

    def _request(self, path: str, kind: type[_Answer]) -> _Answer:
        return self._client.get(path, kind, DOCUMENT_VERSION)
