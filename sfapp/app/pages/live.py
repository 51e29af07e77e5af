"""``/live`` and ``/live/<run>``: running jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from nicegui import background_tasks, events, ui

from sfapp.app.address import run_of
from sfapp.app.connection import connected
from sfapp.app.notices import ignored_options, notices
from sfapp.app.pages.not_found import missing
from sfapp.app.panels.choosers import MOST_LISTED, nodes_offered, number_field, show_options
from sfapp.app.panels.live_header import LiveHeader
from sfapp.app.panels.live_tabs import LivePanel, LivePart, PartContent, parts_of
from sfapp.app.panels.plot_help import PlotHelp
from sfapp.app.panels.stacks_card import StacksCard
from sfapp.app.panels.tab_bar import NODE_TABS
from sfapp.app.routes import Handler
from sfapp.app.theme import (
    Crumb,
    author_of,
    box,
    empty,
    frame,
    is_dark,
    label_text,
    link,
    set_address,
    with_keys,
)
from sfapp.app.view_history import UndoableView
from sfapp.errors import StoreError, WindowNotFoundError
from sfapp.model.view import OVERVIEW
from sfapp.service.live import LiveRunSnapshot, live_run_snapshot
from sfapp.service.live_address import SPANS, LiveState, parse_live
from sfapp.service.live_sharing import SharedSnapshots, has_many_ranks
from sfapp.service.workspace import Workspace
from sfapp.views import format
from sfapp.views.address import live_page, run_page

REFRESH_S = 1.0
"""Seconds between updates from the store; ``MANY_REFRESH_S`` for a job of many ranks."""

MANY_REFRESH_S = 2.0

HEADLINE_S = 0.4
"""Seconds between checks for newer rows, on which the headline is based."""

STEPS = (10, 20, 40, 64)
"""Choices for the number of last steps in the verdict; the address accepts any number."""

STREAM = """perf = sfapp.Recorder("packets", run_id="my-run", stream="tcp://127.0.0.1:29765")

sfapp aggregate packets     # next to the job"""


def build(workspace: Workspace) -> tuple[Handler, ...]:
    """Return the handlers of both pages."""
    snapshots = SharedSnapshots(workspace)

    async def live_runs_page(request: Request) -> None:
        page = LiveRunsPage(workspace)
        await page.build(request)

    async def live_run_page(request: Request, run_id: str) -> None:
        name = run_of(request)
        state, messages = parse_live(request.query_params.multi_items())
        try:
            snapshot = await asyncio.to_thread(live_run_snapshot, workspace, name, state)
            if state.node is not None and state.node not in snapshot.ranks.nodes:
                messages.append(f"The run has no node {state.node}; showing the overview.")
                snapshot = await asyncio.to_thread(
                    live_run_snapshot, workspace, name, replace(state, tab=OVERVIEW)
                )
        except WindowNotFoundError as error:
            missing(workspace, request, str(error), lambda: live_run_snapshot(workspace, name, state))
            return
        page = LivePage(workspace, snapshots, snapshot, is_dark(request))
        page.build(request, messages)
        if await connected():
            await page.start()

    return live_runs_page, live_run_page


class LiveRunsPage:
    """The list of runs that stream or have streamed their steps."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._shown: object = None

    async def build(self, request: Request) -> None:
        """Build the list; it updates itself."""
        with frame(self._workspace, request, "live", (Crumb("Problems", "/"), Crumb("Live")), heading="Live"):
            notices(ignored_options(request))
            self._list = box("stack")
        await self._refresh()
        ui.timer(2 * REFRESH_S, self._refresh, immediate=False)

    async def _refresh(self) -> None:
        runs = await asyncio.to_thread(self._workspace.store.live_runs)
        running = {run["run_id"] for run in await asyncio.to_thread(self._workspace.streaming.newest)}
        shown = [(run["run_id"], run["ranks"], run["nodes"], run["run_id"] in running) for run in runs]
        if shown == self._shown:
            return
        self._shown = shown
        self._list.clear()
        with self._list:
            if not shown:
                with box("card", "section"):
                    empty(
                        "No live job",
                        "To watch a job while it runs, let it stream its steps to an aggregator:",
                        STREAM,
                    )
            for run_id, ranks, nodes, is_running in shown:
                with box("card live-run", "section"):
                    link(format.clip(run_id), live_page(run_id), "h2").mark("live-run")
                    size = f"{format.counted(ranks, 'rank')} on {format.counted(nodes, 'node')}"
                    state = "running" if is_running else "not running"
                    label_text(f"{size}, {state}", "span", "muted")


class LivePage:
    """One open live page."""

    def __init__(
        self, workspace: Workspace, snapshots: SharedSnapshots, snapshot: LiveRunSnapshot, dark: bool
    ) -> None:
        self._workspace = workspace
        self._snapshots = snapshots
        self._snapshot = snapshot
        self._views = UndoableView(
            snapshot.state,
            parse=lambda query: parse_live(parse_qsl(query))[0],
            href=lambda view: view.href(snapshot.run_id),
            show=self._show_view,
        )
        self._dark = dark
        self._is_visible = True
        self._is_busy = False
        self._panels: dict[str, tuple[ui.element, LivePanel]] = {}
        self._nodes: Sequence[int] = ()
        self._node_tabs: dict[int, ui.tab] = {}
        self._node: tuple[ui.select, ui.number] | None = None

    @property
    def state(self) -> LiveState:
        """The view as it is now."""
        return self._views.view

    # --- building -------------------------------------------------------------------------------------

    def build(self, request: Request, messages: list[str]) -> None:
        """Build the page without its plots."""
        run_id = self._snapshot.run_id
        self._plot_help = PlotHelp.of(request)
        crumbs = (
            Crumb("Problems", "/"),
            Crumb("Live", "/live"),
            Crumb(f"Run {format.clip(run_id)}", detail=self._size()),
        )
        with frame(self._workspace, request, f"live {format.clip(run_id)}", crumbs) as page:
            page.dark.on_value_change(lambda event: self._apply_theme(bool(event.value)))
            self._size_label = page.detail.mark("size")
            with box("stack"):
                notices(messages)
                self._head = LiveHeader()
                StacksCard(self._workspace, run_id, lambda: author_of(request))
                self._toolbar()
                self._tab_row = box("tab-row")
                self._build_tabs()
                self._panel_box = box("panels")
        ui.on("visible", self._set_visible)
        self._head.show(self._snapshot)

    async def start(self) -> None:
        """Draw the plots once the browser is connected, then follow the store."""
        await self._draw()
        many = has_many_ranks(self._snapshot)
        ui.timer(MANY_REFRESH_S if many else REFRESH_S, self._refresh)
        ui.timer(HEADLINE_S, self._refresh_headline)

    def _size(self) -> str:
        ranks = self._snapshot.ranks
        return f"{format.counted(len(ranks), 'rank')} · {format.counted(len(ranks.nodes), 'node')}"

    def _toolbar(self) -> None:
        run_id = self._snapshot.run_id
        with box("toolbar"):
            self._follow = ui.switch(
                "Follow the newest step", value=self.state.until is None, on_change=self._follow_or_freeze
            )
            self._follow.props("dense").mark("follow")
            self._span = ui.select(dict(SPANS), value=self.state.span, on_change=self._pick_span)
            self._span.props("dense outlined options-dense aria-label='Time range'").mark("span")
            steps = sorted({*STEPS, self.state.steps})
            self._steps = ui.select(
                {count: f"Last {count} steps" for count in steps},
                value=self.state.steps,
                on_change=self._pick_steps,
            )
            self._steps.props("dense outlined options-dense aria-label='Steps of the verdict'").mark("steps")
            box("grow")
            self._views.button()
            link("Windows of this run", run_page(run_id), "badge").mark("history")
            self._json = link(".json", _twin(run_id, self.state), "badge")

    def _build_tabs(self) -> None:
        self._nodes = self._snapshot.ranks.nodes
        self._node_tabs, self._node = {}, None
        self._tab_row.clear()
        with self._tab_row:
            self._fill_tab_row(self._nodes)

    def _fill_tab_row(self, nodes: Sequence[int]) -> None:
        with ui.tabs(on_change=self._pick_tab).props(
            "dense no-caps inline-label align=left outside-arrows mobile-arrows"
        ) as self._tabs:
            with_keys(ui.tab(OVERVIEW, "Overview"), "o")
            if len(nodes) <= NODE_TABS:
                self._node_tabs = {node: ui.tab(f"node:{node}", f"Node {node}") for node in nodes}
            else:
                ui.tab(_NODES, format.counted(len(nodes), "node"))
        for place, tab in enumerate(list(self._node_tabs.values())[:9], start=1):
            with_keys(tab, str(place))
        if len(nodes) > NODE_TABS:
            chooser = ui.select(
                self._nodes_offered(), value=self.state.node, on_change=self._pick_node, with_input=True
            ).props("dense outlined options-dense placeholder='node' aria-label='Node'")
            another = number_field("another node", "Another node", self._pick_node).mark("another-node")
            another.set_visibility(len(nodes) > MOST_LISTED)
            self._node = chooser.mark("node"), another

    def _nodes_offered(self) -> dict[int, str]:
        offered = nodes_offered(self._snapshot.ranks.nodes, [self.state.node])
        return {node: f"Node {node}" for node in offered}

    def _tab_name(self) -> str:
        is_shared = len(self._snapshot.ranks.nodes) > NODE_TABS
        return _NODES if is_shared and self.state.node is not None else self.state.tab

    # --- actions -----------------------------------------------------------------------

    def _pick_tab(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value in (None, self._tab_name()):
            return
        first = f"node:{self._snapshot.ranks.nodes[0]}"
        self._look(tab=first if event.value == _NODES else event.value)

    def _pick_node(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value in (None, self.state.node):
            return
        if event.value not in self._snapshot.ranks.nodes:
            ui.notify(f"The run has no node {event.value:g}.", type="warning")
            return
        self._look(tab=f"node:{int(event.value)}")

    def _pick_span(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._look(span=event.value)

    def _pick_steps(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._look(steps=event.value)

    def _follow_or_freeze(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value == (self.state.until is None):
            return
        self._look(until=None if event.value else int(self._snapshot.at.timestamp()) + 1)

    def _set_visible(self, event: events.GenericEventArguments) -> None:
        self._is_visible = event.args is not False

    def _look(self, **fields: Any) -> None:
        """Change fields of the ``LiveState``."""
        self._views.change(replace(self.state, **fields), ",".join(fields))

    def _show_view(self, _: LiveState) -> None:
        """Show the view in the controls, then in the plots."""
        state = self.state
        self._snapshot = replace(self._snapshot, state=state)
        self._follow.value = state.until is None
        self._span.value, self._steps.value = state.span, state.steps
        set_address(self._json, _twin(self._snapshot.run_id, state))
        if state.tab in self._panels:  # Shows its last content until the update is drawn.
            self._show_panel(state.tab)
        background_tasks.create(self._update(), context=self._panel_box)

    async def _apply_theme(self, dark: bool) -> None:
        self._dark = dark
        await self._draw()

    # --- following the store --------------------------------------------------------------------------

    async def _refresh(self) -> None:
        """Update the page, unless it is hidden, frozen or being updated."""
        if self._is_visible and self.state.until is None and not self._is_busy:
            await self._update()

    async def _refresh_headline(self) -> None:
        """Show a newer verdict as soon as its rows are here; the rest of the page follows."""
        if not self._is_visible or self.state.until is not None or self._is_busy:
            return
        state, run_id = self.state, self._snapshot.run_id
        rolling = await asyncio.to_thread(self._workspace.rolling, run_id, state.steps)
        if rolling is not None and state == self.state:
            self._head.show_rolling(rolling)

    async def _update(self) -> None:
        self._is_busy = True
        try:
            while True:
                asked = self.state
                snapshot = await asyncio.to_thread(
                    self._snapshots.newest, self._snapshot.run_id, asked, self._snapshot
                )
                if asked == self.state:  # Otherwise another view was requested meanwhile.
                    break
        except StoreError as error:
            ui.notify(f"{error}; showing the last state", type="warning")
            return
        finally:
            self._is_busy = False
        self._snapshot = snapshot
        self._head.show(snapshot)
        self._show_ranks()
        await self._draw()

    def _show_ranks(self) -> None:
        """Follow ranks and nodes that came or went, as with a restart."""
        self._size_label.text = self._size()
        nodes, node = self._snapshot.ranks.nodes, self.state.node
        if nodes != self._nodes:
            self._build_tabs()
        if node is not None and node not in nodes:
            ui.notify(f"The run has no node {node}; showing the overview.", type="warning")
            self._look(tab=OVERVIEW)

    async def _draw(self) -> None:
        """Show the open tab, built when it is first opened and then updated, and hide the others."""
        snapshot, dark = self._snapshot, self._dark
        parts = parts_of(snapshot)
        contents = await asyncio.to_thread(_draw_parts, parts, snapshot, dark)
        if snapshot.state != self.state or dark != self._dark:
            return
        name = snapshot.state.tab
        self._tabs.value = self._tab_name()
        if self._node is not None:
            show_options(self._node[0], self._nodes_offered(), self.state.node)
            self._node[1].value = None
        self._show_panel(name)
        known = self._panels.get(name)
        if known is not None and known[1].names == [part.name for part in parts]:
            known[1].update(contents)
            return
        if known is not None:
            known[0].delete()
        with self._panel_box, box() as container:
            self._panels[name] = (container, LivePanel(parts, contents, self._plot_help))

    def _show_panel(self, name: str) -> None:
        for other, (container, _) in self._panels.items():
            container.set_visibility(other == name)


_NODES = "nodes"
"""Name of the tab that many nodes share."""


def _draw_parts(parts: Sequence[LivePart], snapshot: LiveRunSnapshot, dark: bool) -> list[PartContent]:
    """Return the contents of the parts; pages that show the same snapshot draw it once."""
    key = snapshot.state, tuple(part.name for part in parts), dark
    contents = snapshot.drawn.get(key)
    if contents is None:
        contents = snapshot.drawn[key] = [part.content(snapshot, dark) for part in parts]
    return list(contents)


def _twin(run_id: str, state: LiveState) -> str:
    """Return the address of the page's data in a state, which does not depend on the tab."""
    return replace(state, tab=OVERVIEW).href(run_id, f"{live_page(run_id)}.json")
