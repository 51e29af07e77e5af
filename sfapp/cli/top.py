"""``sfapp top``: a running job in the terminal, for people on a login node."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sfapp.errors import WindowNotFoundError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from sfapp.app.live import LiveScene
    from sfapp.app.workspace import Workspace

_FOLLOW_SECONDS = 1.0
_INGEST_SECONDS = 5.0
_SLOW = 0.1
"""A rank whose newest steps took so much longer than the median rank's is marked."""

_TILES = 16
"""Ranks in a row of the grid."""

LEGEND = "* named by the newest window   + 10 % above the median   ! silent   - left"


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path), default=Path("packets"))
@click.option("--run", "run_id", help="The run to show [default: the one that was heard of last].")
@click.option("--once", is_flag=True, help="Print what there is now, and end.")
def top(path: Path, run_id: str | None, once: bool) -> None:
    """Watch a streaming job from the terminal: its nodes, its ranks, its newest verdict.

    PATH is the folder for packets that the aggregator writes to, or one run's folder in it. Reads files only.
    Ctrl-C ends it.

    \b
    sfapp top packets
    sfapp top packets --once
    """
    with tempfile.TemporaryDirectory(prefix="sfapp-") as scratch:
        os.environ["NICEGUI_STORAGE_PATH"] = scratch  # picked when the app is imported
        from sfapp.app.workspace import Workspace
        from sfapp.store import Store

        with Store.open([path], memory=True) as store:
            workspace = Workspace(store, [path])
            store.ingest()
            if once:
                _print_once(workspace, run_id)
            else:
                _watch(workspace, run_id)


def _print_once(workspace: Workspace, run_id: str | None) -> None:
    from rich.console import Console

    scene = newest_scene(workspace, run_id)
    if scene is None:
        raise WindowNotFoundError("no run was streamed here: sfapp run --live, or name another folder")
    Console().print(frame(scene))


def _watch(workspace: Workspace, run_id: str | None) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    ingested = time.monotonic()
    with Live(console=Console(), screen=True, auto_refresh=False) as screen:
        try:
            while True:
                scene = newest_scene(workspace, run_id)
                waiting = Text("Nothing is streamed here yet; waiting.")
                screen.update(waiting if scene is None else frame(scene), refresh=True)
                time.sleep(_FOLLOW_SECONDS)
                if time.monotonic() - ingested > _INGEST_SECONDS:
                    workspace.store.ingest()
                    ingested = time.monotonic()
                else:
                    workspace.store.follow()
        except KeyboardInterrupt:
            return


def newest_scene(workspace: Workspace, run_id: str | None) -> LiveScene | None:
    """What is known of a run, or of the one heard of last; None before there is any."""
    from sfapp.app.live import LiveState, live_scene

    runs = workspace.store.live_runs()
    if run_id is None and not runs:
        return None
    return live_scene(workspace, runs[0]["run_id"] if run_id is None else run_id, LiveState())


def frame(scene: LiveScene) -> RenderableType:
    """A run as it is drawn: how it is heard of, a row a node, a tile a rank, the newest verdict."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from sfapp.views import words
    from sfapp.views.live_tables import NODE_COLUMNS

    said, kind = words.standing(len(scene.links), scene.silent_s, scene.left)
    style = {"live": "green", "ended": "dim"}.get(kind, "red")
    head = Text.assemble((_plain(scene.run_id), "bold"), "  ", (said, style), f"  {_newest_step(scene)}")
    nodes = Table(box=None, pad_edge=False, header_style="bold")
    for column in NODE_COLUMNS:
        nodes.add_column(column.title, justify="left" if column.field == "hostname" else "right")
    for row in scene.node_table:
        shown = (row[column.shown] for column in NODE_COLUMNS)
        nodes.add_row(*(Text("–" if value is None else _plain(str(value))) for value in shown))
    silent = [Text(line, style="red") for line in words.silences(scene.silent_s)]
    verdict = Text(_plain(scene.verdict.get("said", "no window has been finished yet")), style="yellow")
    space = Text("")
    return Group(head, space, nodes, space, *_grid(scene), Text(LEGEND, style="dim"), space, verdict, *silent)


def _newest_step(scene: LiveScene) -> str:
    return f"step {scene.times.step_N[-1]}" if len(scene.times.step_N) else "no step yet"


def _grid(scene: LiveScene) -> list[Text]:
    """A tile a rank, a line or more a node."""
    from rich.text import Text

    marks = _marks(scene)
    width = len(str(max(link["rank"] for link in scene.links)))
    lines = []
    for node in scene.ranks.nodes:
        members = [link["rank"] for link in scene.links if link["node_rank"] == node]
        for first in range(0, len(members), _TILES):
            line = Text(f"node {node:<5}" if first == 0 else " " * 10)
            for rank in members[first : first + _TILES]:
                mark, style = marks[rank]
                line.append(f" {rank:>{width}}{mark}", style=style)
            lines.append(line)
    return lines


def _marks(scene: LiveScene) -> dict[int, tuple[str, str]]:
    """By rank, a letter that says what is with it, and its colour."""
    import numpy as np

    from sfapp.model.diagnosis import QUIET_SEVERITY
    from sfapp.views import words

    newest = scene.newest or {}
    times = scene.times
    mean_R = np.full(len(times.ranks), np.nan)
    there_R = ~np.isnan(times.wall_NR[-_TILES:]).all(axis=0) if len(times.step_N) else np.zeros(0, bool)
    for place in np.flatnonzero(there_R).tolist():
        mean_R[place] = np.nanmean(times.wall_NR[-_TILES:, place])
    middle = float(np.nanmedian(mean_R)) if there_R.any() else float("nan")
    found: dict[int, tuple[str, str]] = {}
    for place, rank in enumerate(times.ranks.rank):
        if rank in scene.left:
            found[rank] = "-", "dim"
        elif scene.silent_s.get(rank, 0.0) > words.STALE_S:
            found[rank] = "!", "bold red"
        elif rank == newest.get("aim_rank") and (newest.get("severity") or 0.0) >= QUIET_SEVERITY:
            found[rank] = "*", "bold yellow"
        else:
            found[rank] = ("+", "yellow") if mean_R[place] > middle * (1 + _SLOW) else (" ", "green")
    return found


def _plain(text: str) -> str:
    """Without what a terminal would obey."""
    from sfapp.cli.analyze import printable

    return printable(text)
