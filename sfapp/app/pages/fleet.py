"""``/fleet``: hosts that are late in too many runs, where time is lost, and the state of every run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from fastapi import Request
from nicegui import events, ui

from sfapp.app.connection import connected
from sfapp.app.notices import ignored_options, notices
from sfapp.app.notifications import follow
from sfapp.app.panels.tables import titled
from sfapp.app.panels.trends import trends_table
from sfapp.app.routes import Handler
from sfapp.app.theme import (
    Crumb,
    box,
    empty,
    frame,
    label_text,
    left_out,
    link,
    set_address,
    show_address,
    with_keys,
)
from sfapp.app.window_list import ListState
from sfapp.model.fleet import Fleet, FleetHost, FleetRun, LostTime
from sfapp.model.search_words import MAX_SEARCH
from sfapp.model.trends import BY_DAY, MOST_FIELD, Trends
from sfapp.service.fleet import FleetQuery
from sfapp.service.workspace import Workspace
from sfapp.store import IngestReport
from sfapp.views import format
from sfapp.views.address import fleet_page, run_page
from sfapp.views.text.fleet import STATE_WORDS, fleet_headline, host_advice, host_sentence
from sfapp.views.text.problems import rank_time

MOST_SUSPECTS = 8
MOST_LISTED = 100
"""Hosts and runs that the page lists; the search and the export find the others."""

_LOST_HELP = (
    "Time of all ranks. Above healthy: beyond the step of the run's healthy windows. Imbalance: in which the "
    "slowest rank exceeds a typical one. The two overlap."
)


def build(workspace: Workspace) -> tuple[Handler, ...]:
    """Return the page's handler."""

    async def show_fleet(request: Request) -> None:
        page = FleetPage(workspace, request.query_params)
        await page.read()
        with frame(workspace, request, "fleet", (Crumb("Problems", "/"), Crumb("Fleet"))):
            notices(ignored_options(request, "text", "by"))
            page.build()

        async def refresh(_: IngestReport) -> None:
            await page.refresh()

        if await connected():
            follow(workspace.changed, refresh)

    return (show_fleet,)


class FleetPage:
    """One open page of all runs."""

    def __init__(self, workspace: Workspace, query: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._query = FleetQuery(query.get("text", "")[:MAX_SEARCH])
        self._by = query.get("by", "")[:MOST_FIELD] or BY_DAY
        self._fleet, self._trends = Fleet(), Trends()

    async def read(self) -> bool:
        """Read the state of the store; return whether it changed."""
        before = self._fleet, self._trends
        self._fleet, self._trends = await asyncio.gather(
            asyncio.to_thread(self._workspace.fleet), asyncio.to_thread(self._workspace.trends, self._by)
        )
        return (self._fleet, self._trends) != before

    def build(self) -> None:
        """Build the page inside the current container."""
        with box("stack"):
            with box("overview-head"):
                self._headline = label_text("", "h1").mark("fleet-headline")
            with box("toolbar"):
                search = ui.input(
                    placeholder="Search hosts, runs, stages", value=self._query.text, on_change=self._search
                )
                search.props("dense outlined clearable debounce=250 aria-label='Search the fleet'")
                search.props["maxlength"] = MAX_SEARCH
                with_keys(search.classes("search wide").mark("search"), "/")
                box("grow")
                self._json = link(".json", "", "badge")
            self._content = box("stack")
        self._draw()

    async def refresh(self) -> None:
        """Show the present state of the store."""
        if await self.read() and not self._content.is_deleted:
            self._draw()

    async def _group_by(self, by: str) -> None:
        self._by = by
        show_address(self._address)
        await self.refresh()

    @property
    def _address(self) -> str:
        return fleet_page(self._query.text, "" if self._by == BY_DAY else self._by)

    def _search(self, event: events.ValueChangeEventArguments[str | None]) -> None:
        self._query = FleetQuery((event.value or "")[:MAX_SEARCH])
        show_address(self._address)
        self._draw()

    def _draw(self) -> None:
        found = self._query.select(self._fleet)
        self._headline.text = fleet_headline(self._fleet)
        set_address(self._json, self._address.replace("/fleet", "/fleet.json", 1))
        self._content.clear()
        with self._content:
            if not self._fleet.runs:
                with box("card", "section"):
                    empty("No runs yet", "Packets appear here as they are written.", "sfapp run train.py")
                return
            for host in found.suspects[:MOST_SUSPECTS]:
                _suspect(host)
            _hosts(found.hosts)
            trends_table(self._trends, self._group_by)
            _lost(self._fleet.lost)
            _runs(found.runs)


def _suspect(host: FleetHost) -> None:
    with box("card", "section").mark("suspect-host"):
        label_text(format.clip(host.hostname, 80), "h2")
        label_text(host_sentence(host), "p")
        label_text(host_advice(host), "p")
        with box("links", "ul"):
            for run_id in host.run_ids:
                with box("", "li"):
                    link(format.clip(run_id), _windows_of(host.hostname, run_id))


def _windows_of(hostname: str, run_id: str | None = None) -> str:
    """Return the page of the windows that need attention and name a host."""
    return ListState(run=run_id, text=hostname, needs_attention=True).href


def _hosts(hosts: Sequence[FleetHost]) -> None:
    with titled(
        "Hosts",
        "How often a host has the late rank, over runs on several hosts that have one. By chance, every host "
        "of a run is equally likely. The chance is corrected for the number of hosts.",
    ):
        if not hosts:
            label_text("No host that matches has a late rank.", "p", "muted")
            return
        with box("scroll"), box("table", "table").mark("hosts"):
            _head("Host", "Runs", "By chance", "Chance", "Windows", "Stages", "Last")
            with box("", "tbody"):
                for host in hosts[:MOST_LISTED]:
                    _host_row(host)
        if len(hosts) > MOST_LISTED:
            left_out(MOST_LISTED, len(hosts), "hosts")


def _host_row(host: FleetHost) -> None:
    stages = [f"{format.short_stage(stage)} ({windows:,})" for stage, windows in host.stages]
    with box("", "tr"):
        with box("", "td"):
            link(format.clip(host.hostname), _windows_of(host.hostname))
        label_text(f"{host.named_runs:,} of {host.compared_runs:,}", "td", "number")
        label_text(f"{host.expected_runs:.1f}", "td", "number")
        label_text(format.chance(host.chance), "td", "number")
        label_text(f"{host.named_windows:,} of {host.windows:,}", "td", "number")
        label_text(format.listed(stages), "td")
        label_text("" if host.last_at is None else f"{host.last_at:%Y-%m-%d %H:%M}", "td", "number")


def _lost(lost: Sequence[LostTime]) -> None:
    with titled("Lost time by stage", _LOST_HELP), box("scroll"), box("table", "table").mark("lost"):
        _head("Stage", "Above healthy", "Imbalance")
        with box("", "tbody"):
            for one in lost:
                with box("", "tr"):
                    with box("", "td"):
                        link(
                            format.short_stage(one.stage),
                            ListState(stage=one.stage, needs_attention=True).href,
                        )
                    label_text(rank_time(one.above_healthy), "td", "number")
                    label_text(rank_time(one.imbalance), "td", "number")


def _runs(runs: Sequence[FleetRun]) -> None:
    with titled("Runs", "those whose latest window needs attention first, then by time lost"):
        if not runs:
            label_text("No run matches.", "p", "muted")
            return
        with box("scroll"), box("table", "table").mark("runs"):
            _head("Run", "State", "Ranks", "Windows", "Above healthy", "Imbalance", "Last window")
            with box("", "tbody"):
                for run in runs[:MOST_LISTED]:
                    _run_row(run)
        if len(runs) > MOST_LISTED:
            left_out(MOST_LISTED, len(runs), "runs")


def _run_row(run: FleetRun) -> None:
    with box("", "tr").mark("run-row"):
        with box("", "td"):
            link(format.clip(run.run_id), run_page(run.run_id))
        label_text(STATE_WORDS[run.state], "td")
        label_text(format.count(run.ranks), "td", "number")
        label_text(f"{run.troubled_windows:,} of {run.windows:,}", "td", "number")
        label_text(rank_time(run.above_healthy), "td", "number")
        label_text(rank_time(run.imbalance), "td", "number")
        label_text("" if run.ended_at is None else f"{run.ended_at:%Y-%m-%d %H:%M}", "td", "number")


def _head(first: str, *others: str) -> None:
    with box("", "thead"), box("", "tr"):
        label_text(first, "th")
        for title in others:
            label_text(title, "th", "" if title in ("State", "Stages") else "number")
