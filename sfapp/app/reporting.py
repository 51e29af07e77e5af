"""Reports from the app: the same way as the command's, over the store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import sfapp
from sfapp.accounting import judge, measure
from sfapp.app.workspace import Judged, Workspace
from sfapp.errors import WindowError, WindowNotFoundError
from sfapp.incidents import Book
from sfapp.model.view import ViewState, WindowKey
from sfapp.operators import Findings
from sfapp.packets import packet_path
from sfapp.report import Evidence, Order, Packet, Pseudonyms, make, packed
from sfapp.store import PacketSource, Store, WindowQuery
from sfapp.views import format

_EVERY = 2**31


class CancelledReportError(Exception):
    """Somebody no longer wants the report; no error of sfapp."""


@dataclass(slots=True)
class Progress:
    """How far the making of a report is: told by its thread, read and cancelled by the page.

    Attributes:
        said: what is being done, in words.
    """

    said: str = ""
    _cancel: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """Stop at the next step."""
        self._cancel.set()

    def tell(self, said: str) -> None:
        """Say what is done next; raises ``CancelledReportError`` where nobody wants it any more."""
        if self._cancel.is_set():
            raise CancelledReportError
        self.said = said


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody asks for: the ending of a format, and whether names are to be hidden."""

    ending: str
    redact: bool


Make = Callable[[Wish, Progress], tuple[str, bytes]]
"""Makes a report, blocking: the name and content of one file."""


def window_report(workspace: Workspace, key: WindowKey, view: ViewState) -> Make:
    """Makes the report on one window as it is looked at, with the notes pinned to it."""

    def made(wish: Wish, progress: Progress) -> tuple[str, bytes]:
        store = workspace.store_of(key.run_id)
        manifest = store.window(key.run_id, key.window).manifest
        ended = manifest.ended_at or manifest.started_at
        order = Order(
            output=f"sfapp-window-{key.window}{wish.ending}",
            paths=_paths(workspace, store, key),
            windows=(key,),
            view=view,
            title=f"Window {key.window} of {format.clip(key.run_id, 80)}",
            at=datetime.fromisoformat(ended) if ended else datetime.fromtimestamp(0, UTC),
        )
        return deliver(workspace, order, wish, progress)

    return made


def incident_report(workspace: Workspace, incident_id: str) -> Make:
    """Makes the report on an incident as it stands."""

    def made(wish: Wish, progress: Progress) -> tuple[str, bytes]:
        incident = workspace.incidents.book().incident(incident_id)
        order = Order(
            output=f"sfapp-incident-{incident.short_id}{wish.ending}",
            paths=tuple(map(str, workspace.paths)),
            incident=incident.id,
            called=incident.short_id,
            at=(incident.changed or incident.written).at,
        )
        return deliver(workspace, order, wish, progress)

    return made


def deliver(workspace: Workspace, order: Order, wish: Wish, progress: Progress) -> tuple[str, bytes]:
    """Make what was ordered; blocking.

    Raises:
        SfappError: it cannot be made; the message says why.
        CancelledReportError: it was cancelled.
    """
    book = workspace.incidents.book()
    names = _names(_stores(workspace, order, book), book, progress) if wish.redact else None

    progress.tell("collecting")
    look = _StoreEvidence(workspace, names, progress)
    _, files = make(order, look, book, version=sfapp.__version__, names=names)
    progress.tell("packing")
    return packed(files)


@dataclass(frozen=True, slots=True)
class _StoreEvidence:
    """Finds windows in the store, under their pseudonyms where there are some."""

    workspace: Workspace
    names: Pseudonyms | None
    progress: Progress

    def __call__(self, key: WindowKey, view: ViewState) -> Evidence:
        self.progress.tell(f"judging and drawing window {key.window}")
        try:
            return _evidence(self.workspace, key, view, self.names)
        except (WindowError, WindowNotFoundError) as error:
            # The report says it in the window's place: under pseudonyms too.
            said = str(error)
            raise type(error)(self.names.text(said) if self.names else said) from error

    def windows(self, run_id: str) -> Sequence[int]:
        real = self.names.real(WindowKey(run_id, 0)).run_id if self.names else run_id
        rows = self.workspace.store_of(real).timeline(real)
        return [row["window"] for row in rows]


def _evidence(workspace: Workspace, key: WindowKey, view: ViewState, names: Pseudonyms | None) -> Evidence:
    if names is None:
        judged = workspace.judge(workspace.source(key), view)
        packets = tuple(Packet(one.path.name, one.sha256) for one in judged.source.packets)
        return Evidence(
            judged.window,
            judged.diagnosis,
            packets,
            run_waits=judged.measures.run_waits,
            findings=lambda: workspace.examined(judged).result().or_raise(),
            has_operators=bool(judged.source.operators),
        )
    real, hidden = names.real(key), view.reference
    as_it_is = replace(view, reference=None if hidden is None else names.real(hidden))
    return _hidden(workspace, workspace.judge(workspace.source(real), as_it_is), view, names)


def _hidden(workspace: Workspace, judged: Judged, view: ViewState, names: Pseudonyms) -> Evidence:
    """Judged again under its pseudonyms, so that no word of the verdict can hold a real name."""
    window = names.window(judged.window)
    reference = judged.reference
    if reference is not None:
        reference = replace(reference, run_id=names.runs[reference.run_id])
    measures = measure(window.of_group(view.group), view.baseline, reference).in_run(
        judged.measures.run_waits
    )
    packets = tuple(
        Packet(packet_path(Path(), window.run_id, window.number, one.part_rank).name, one.sha256)
        for one in judged.source.packets
    )
    return Evidence(
        window,
        judge(measures, view.gates, view.frontier, reference),
        packets,
        run_waits=measures.run_waits,
        findings=lambda: _without_names(workspace, judged, names),
        has_operators=bool(judged.source.operators),
    )


def _without_names(workspace: Workspace, judged: Judged, names: Pseudonyms) -> Findings:
    """Findings hold no runs and hosts; what keeps them from being made may name both."""
    try:
        return workspace.examined(judged).result().or_raise()
    except WindowError as error:
        raise WindowError(names.text(str(error))) from error


def _stores(workspace: Workspace, order: Order, book: Book) -> list[Store]:
    """The store, and that of the examples where one of them is told."""
    keys = list(order.windows)
    if order.incident is not None:
        items = book.incident(order.incident).items
        keys += [item.window for item in items if item.window is not None]
    return list(dict.fromkeys([workspace.store, *(workspace.store_of(key.run_id) for key in keys)]))


def _names(stores: Sequence[Store], book: Book, progress: Progress) -> Pseudonyms:
    """Pseudonyms for every run and host there is, so that the command's report has the same ones."""
    windows = [(store, row) for store in stores for row in store.windows(WindowQuery(limit=_EVERY)).rows]
    hosts: set[str] = set()
    for place, (store, row) in enumerate(windows, 1):
        done = f"{format.count(place)} of {format.count(len(windows))}"
        progress.tell(f"collecting the names to hide: {done} windows")
        hosts.update(store.window(row["run_id"], row["window"]).hostnames)
    return Pseudonyms.of_names({row["run_id"] for _, row in windows}, hosts, book)


def _paths(workspace: Workspace, store: Store, key: WindowKey) -> tuple[str, ...]:
    """Where the packets are: the paths that are served, or the folder of an example."""
    if store is workspace.store:
        return tuple(map(str, workspace.paths))
    sources: list[PacketSource] = store.sources(key.run_id, key.window)
    return (str(sources[0].path.parent),)
