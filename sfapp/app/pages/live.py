"""``/live`` and ``/live/<run>``: jobs while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import Request
from nicegui import events, ui

from sfapp.app.address import run_of
from sfapp.app.pages.not_found import missing
from sfapp.app.panels.live_tabs import Drawn, LiveHead, LivePanel, LivePart, parts_of
from sfapp.app.panels.plot_help import ReadingAids
from sfapp.app.panels.tab_bar import NODE_TABS
from sfapp.app.theme import (
    Crumb,
    box,
    empty,
    frame,
    is_dark,
    label_text,
    link,
    notices,
    show_address,
    with_keys,
)
from sfapp.errors import StoreError, WindowNotFoundError
from sfapp.model.view import OVERVIEW
from sfapp.service.live import (
    SPANS,
    LiveRunSnapshot,
    LiveState,
    live_run_snapshot,
    parse_live,
    streaming_runs,
)
from sfapp.service.workspace import Workspace
from sfapp.views import format
from sfapp.views.address import live_page, run_page

REFRESH_S = 1.0
"""Seconds between looks at the store: no page is brought up to date more often."""

STREAM = """perf = sfapp.Recorder("packets", run_id="my-run", stream="tcp://127.0.0.1:29765")

sfapp aggregate packets     # beside the job"""


def build(workspace: Workspace) -> None:
    """Register both pages."""

    @ui.page("/live", response_timeout=30)
    async def live_runs_page(request: Request) -> None:
        page = RunsPage(workspace)
        await page.build(request)

    @ui.page("/live/{run_id:path}", response_timeout=30)
    async def live_run_page(request: Request, run_id: str) -> None:
        name = run_of(request)
        state, told = parse_live(request.query_params.multi_items())
        try:
            scene = await asyncio.to_thread(live_run_snapshot, workspace, name, state)
            if state.node is not None and state.node not in scene.ranks.nodes:
                told.append(f"The run has no node {state.node}; showing all of it.")
                scene = await asyncio.to_thread(
                    live_run_snapshot, workspace, name, replace(state, tab=OVERVIEW)
                )
        except WindowNotFoundError as error:
            missing(workspace, request, str(error), lambda: live_run_snapshot(workspace, name, state))
            return
        page = LivePage(workspace, scene, is_dark(request))
        page.build(request, told)
        await ui.context.client.connected()
        await page.start()


class RunsPage:
    """The runs that are, or were, streamed."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._shown: object = None

    async def build(self, request: Request) -> None:
        """The list, kept up to date."""
        with frame(self._workspace, request, "live", (Crumb("Windows", "/"), Crumb("Live"))):
            self._list = box("stack")
        await self._refresh()
        ui.timer(2 * REFRESH_S, self._refresh, immediate=False)

    async def _refresh(self) -> None:
        runs = await asyncio.to_thread(self._workspace.store.live_runs)
        running = {run["run_id"] for run in await asyncio.to_thread(streaming_runs, self._workspace)}
        shown = [(run["run_id"], run["ranks"], run["nodes"], run["run_id"] in running) for run in runs]
        if shown == self._shown:
            return
        self._shown = shown
        self._list.clear()
        with self._list:
            if not shown:
                with box("card", "section"):
                    empty(
                        "No job is streamed here",
                        "A job that streams its steps to an aggregator can be watched while it runs:",
                        STREAM,
                    )
            for run_id, ranks, nodes, is_running in shown:
                with box("card live-run", "section"):
                    link(format.clip(run_id), live_page(run_id), "h2").mark("live-run")
                    said = f"{format.counted(ranks, 'rank')} on {format.counted(nodes, 'node')}"
                    label_text(f"{said}, {'running' if is_running else 'not running now'}", "span", "muted")


class LivePage:
    """One open run."""

    def __init__(self, workspace: Workspace, scene: LiveRunSnapshot, dark: bool) -> None:
        self._workspace = workspace
        self._scene = scene
        self._dark = dark
        self._is_visible = True
        self._is_busy = False
        self._panels: dict[str, tuple[ui.element, LivePanel]] = {}
        self._node_tabs: dict[int, ui.tab] = {}

    @property
    def state(self) -> LiveState:
        """What is looked at now."""
        return self._scene.state

    # --- building -------------------------------------------------------------------------------------

    def build(self, request: Request, told: list[str]) -> None:
        """The page without its plots."""
        run_id = self._scene.run_id
        self._aids = ReadingAids.of(request)
        crumbs = (
            Crumb("Windows", "/"),
            Crumb("Live", "/live"),
            Crumb(f"Run {format.clip(run_id)}", detail=self._size()),
        )
        with frame(self._workspace, request, f"live {format.clip(run_id)}", crumbs) as page:
            page.dark.on_value_change(lambda event: self._wear(bool(event.value)))
            with box("stack"):
                notices(told)
                self._head = LiveHead()
                self._toolbar()
                with box("tab-row"):
                    self._build_tabs()
                self._panel_box = box("panels")
        ui.on("visible", self._see)
        self._head.show(self._scene)

    async def start(self) -> None:
        """Draw the plots once the browser is there, then follow the store."""
        await self._draw()
        ui.timer(REFRESH_S, self._refresh)

    def _size(self) -> str:
        ranks = self._scene.ranks
        return f"{format.counted(len(ranks), 'rank')} · {format.counted(len(ranks.nodes), 'node')}"

    def _toolbar(self) -> None:
        run_id = self._scene.run_id
        with box("toolbar"):
            ui.switch(
                "follow the newest", value=self.state.until is None, on_change=self._follow_or_freeze
            ).props("dense").mark("follow")
            ui.select(dict(SPANS), value=self.state.span, on_change=self._pick_span).props(
                "dense outlined options-dense aria-label='how far back'"
            ).mark("span")
            label_text("for looking at; the verdict comes with each finished window", "span", "muted")
            box("grow")
            link("windows of this run", run_page(run_id), "badge").mark("history")
            self._json = link(".json", f"{live_page(run_id)}.json", "badge")

    def _build_tabs(self) -> None:
        nodes = self._scene.ranks.nodes
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
            ui.select(
                {node: f"node {node}" for node in nodes},
                value=self.state.node,
                on_change=lambda event: self._look(tab=f"node:{event.value}"),
                with_input=True,
            ).props("dense outlined options-dense aria-label='node'").mark("node")

    def _tab_name(self) -> str:
        is_shared = len(self._scene.ranks.nodes) > NODE_TABS
        return _NODES if is_shared and self.state.node is not None else self.state.tab

    # --- what the operator does -----------------------------------------------------------------------

    async def _pick_tab(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value in (None, self._tab_name()):
            return
        first = f"node:{self._scene.ranks.nodes[0]}"
        await self._look(tab=first if event.value == _NODES else event.value)

    async def _pick_span(self, event: events.ValueChangeEventArguments[Any]) -> None:
        await self._look(span=event.value)

    async def _follow_or_freeze(self, event: events.ValueChangeEventArguments[Any]) -> None:
        await self._look(until=None if event.value else int(self._scene.at.timestamp()) + 1)

    def _see(self, event: events.GenericEventArguments) -> None:
        self._is_visible = event.args is not False

    async def _look(self, **fields: Any) -> None:
        """Look at something else; ``fields`` are those of ``LiveState``."""
        state = replace(self.state, **fields)
        self._scene = replace(self._scene, state=state)
        show_address(state.href(self._scene.run_id))
        self._json.props["href"] = f"{live_page(self._scene.run_id)}.json{_query(state)}"
        await self._bring_up_to_date()

    async def _wear(self, dark: bool) -> None:
        self._dark = dark
        await self._draw()

    # --- following the store --------------------------------------------------------------------------

    async def _refresh(self) -> None:
        """Once a second: nothing where nobody looks, where time stands still, or where it is being done."""
        if self._is_visible and self.state.until is None and not self._is_busy:
            await self._bring_up_to_date()

    async def _bring_up_to_date(self) -> None:
        self._is_busy = True
        try:
            while True:
                asked = self.state
                scene = await asyncio.to_thread(
                    live_run_snapshot, self._workspace, self._scene.run_id, asked, before=self._scene
                )
                if asked == self.state:  # what was asked for meanwhile comes first
                    break
        except StoreError as error:
            ui.notify(f"{error}; showing it as it was", type="warning")
            return
        finally:
            self._is_busy = False
        self._scene = scene
        self._head.show(scene)
        await self._draw()

    async def _draw(self) -> None:
        """The open tab: built when it is first shown, afterwards only what changed; the others hidden."""
        scene, dark = self._scene, self._dark
        parts = parts_of(scene)
        drawn = await asyncio.to_thread(_drawn, parts, scene, dark)
        if scene.state != self.state or dark != self._dark:
            return
        name = scene.state.tab
        self._tabs.value = self._tab_name()
        for other, (container, _) in self._panels.items():
            container.set_visibility(other == name)
        known = self._panels.get(name)
        if known is not None and known[1].names == [part.name for part in parts]:
            known[1].bring(drawn)
            return
        if known is not None:
            known[0].delete()
        with self._panel_box, box() as container:
            self._panels[name] = (container, LivePanel(parts, drawn, self._aids))


_NODES = "nodes"
"""The tab that the nodes share where there are many."""


def _drawn(parts: Sequence[LivePart], scene: LiveRunSnapshot, dark: bool) -> list[Drawn]:
    return [part.draw(scene, dark) for part in parts]


def _query(state: LiveState) -> str:
    query: Mapping[str, int] = {"span": state.span} | ({} if state.until is None else {"until": state.until})
    return "?" + "&".join(f"{name}={value}" for name, value in query.items())
