"""``sfapp top``: watch a running job in the terminal, for a login node without a browser."""

from __future__ import annotations

import os
import statistics
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sfapp.cli.signals import ends_after_block
from sfapp.errors import RemoteError, WindowNotFoundError
from sfapp.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table

    from sfapp.cli.live_client import LiveSource, RunReport
    from sfapp.views.table_columns import TableColumn

_FOLLOW_SECONDS = 1.0
_LEFT_FOR_S = 0.5
"""Seconds after a signal in which the terminal is left in order; an app may take longer to answer."""

_LEAVE_SCREEN = b"\x1b[?25h\x1b[?1049l"
"""What shows a terminal's cursor and its usual screen again."""

_SLOW = 0.1
"""Share above the median rank's step time from which a rank is marked."""

_TILES = 16, 8, 4, 2, 1
"""Possible numbers of ranks in a row of the grid; the largest that fits is used."""

_NODE_WIDTH = 10

_DISPENSABLE = (
    "clock_offset_ns",
    "memory_used_bytes",
    "cpu_percent",
    "behind",
    "worst_ns",
    "ranks",
    "hostname",
)
"""Columns of the nodes table that a narrow terminal leaves out, in this order."""

_MOST_NODES = 256
"""Rows of the nodes table; drawing a thousand takes seconds."""

_MOST_SILENT = 32
"""Sentences on silent ranks; each names a group of ranks."""

_LONGEST_SENTENCE = 1_000

_LONGEST_CELL = 80

_MOST_LINES = 32_768
"""Lines of the grid: those of 131,072 ranks on nodes of four."""

_LONGEST_HOST = 24
_WIDEST = 1000

LEGEND = "* named by the verdict   + 10 % above the median   ! silent   - finished"


class FolderOrAddress(click.Path):
    """Parameter type of an existing folder or the address of an app."""

    name = "folder or address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and "://" in value:
            return value
        return super().convert(value, param, ctx)


@click.command()
@click.argument(
    "where", type=FolderOrAddress(exists=True, path_type=Path), default=Path("packets"), metavar="[WHERE]"
)
@click.option("--run", "run_id", help="Run to show [default: the most recently active one].")
@click.option("--once", is_flag=True, help="Print the present state and exit.")
@click.option(
    "--token",
    envvar="SFAPP_TOKEN",
    help="Token of the app, if it requires one. SFAPP_TOKEN keeps it out of the list of processes.",
)
def top(where: Path | str, run_id: str | None, once: bool, token: str | None) -> None:
    """Watch a streaming job in the terminal: which rank holds it, its nodes, its ranks, its newest verdict.

    WHERE is the packet folder that the aggregator writes to, the folder of one run in it, or the address of a
    running app (`sfapp serve`, `sfapp run --ui`). The command only reads. Stop it with Ctrl-C.

    \b
    sfapp top packets
    sfapp top packets --once
    sfapp top http://node0:8642
    """
    with _source(where, token) as source:
        if once:
            _print_once(source, run_id)
        else:
            _watch(source, run_id)


@contextmanager
def _source(where: Path | str, token: str | None) -> Iterator[LiveSource]:
    from sfapp.cli.live_client import AppSource, FolderSource
    from sfapp.store import Store

    if isinstance(where, str):
        yield AppSource(where, token)
    else:
        with Store.open([where], memory=True) as store:
            yield FolderSource(store, where)


def _print_once(source: LiveSource, run_id: str | None) -> None:
    from rich.console import Console

    report = source.latest(run_id)
    if report is None:
        raise WindowNotFoundError(f"{source.place} has no streaming run: start one with `sfapp run --live`")
    Console().print(frame(report))


def _watch(source: LiveSource, run_id: str | None) -> None:
    """Redraw every second until a signal.

    A thread draws: what a signal's handler raises amid a drawing, a query or an import would leave the
    terminal in its other screen.
    """
    from rich.console import Console

    console, drawing = Console(), Future[None]()

    def draw() -> None:
        try:
            _draw(source, run_id, console, stop)
            drawing.set_result(None)
        except BaseException as error:  # noqa: BLE001  # It is raised on the main thread.
            drawing.set_exception(error)
        finally:
            stop.set()

    with ends_after_block() as stop:
        threading.Thread(target=draw, name="sfapp-top", daemon=True).start()
        stop.wait()
        if wait([drawing], _LEFT_FOR_S).done:
            drawing.result()
        elif console.is_terminal and not console.is_dumb_terminal:
            with suppress(OSError):  # The terminal was closed.
                os.write(console.file.fileno(), _LEAVE_SCREEN)


def _draw(source: LiveSource, run_id: str | None, console: Console, stop: threading.Event) -> None:
    """Redraw until the event. While an app does not respond, or has not read the run yet after a restart,
    show the error below the last state."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    shown: RenderableType = Text("No streaming run yet; waiting for one.")
    report = source.latest(run_id)
    with Live(console=console, screen=True, auto_refresh=False) as screen:
        while True:
            shown = shown if report is None else frame(report)
            screen.update(shown, refresh=True)
            if stop.wait(_FOLLOW_SECONDS):
                return
            try:
                report = source.latest(run_id)
            except (RemoteError, WindowNotFoundError) as error:
                report = None
                screen.update(Group(shown, Text(printable(str(error)), style="red")), refresh=True)
                if stop.wait(_FOLLOW_SECONDS):
                    return


def frame(report: RunReport) -> RenderableType:
    """Return the drawing of a run: its state, the verdict on its last steps, one row per node, one tile per
    rank, the verdict on the newest window."""
    from rich.console import Group
    from rich.text import Text

    style = {"live": "green", "ended": "dim"}.get(report.state, "red")
    step = "no step yet" if report.newest_step is None else f"step {report.newest_step}"
    head = Text.assemble(
        (printable(report.run), "bold"), "  ", (printable(report.summary), style), f"  {step}"
    )
    rolling: list[Text] = []
    if report.standstill is not None:
        rolling.append(Text(printable(report.standstill.summary), style="bold red"))
        rolling += [Text(printable(line), style="dim") for line in report.standstill.detail]
    elif report.rolling is not None:
        tone = {"healthy": "green", "starting": "dim", "ended": "dim"}.get(report.rolling.kind, "bold yellow")
        rolling.append(Text(printable(report.rolling.summary), style=tone))
        rolling += [Text(printable(line), style="dim") for line in report.rolling.detail]
    silent = [Text(printable(line, _LONGEST_SENTENCE), style="red") for line in report.silent[:_MOST_SILENT]]
    if len(report.silent) > _MOST_SILENT:
        silent.append(Text(f"… and {len(report.silent) - _MOST_SILENT:,} more", style="red"))
    newest_words = "no finished window yet" if report.newest_window is None else report.newest_window.summary
    verdict = Text(printable(newest_words), style="yellow")
    space = Text("")
    nodes, legend = _Nodes(report), Text(LEGEND, style="dim")
    return Group(head, *rolling, space, nodes, space, _Grid(report), legend, space, verdict, *silent)


class _Nodes:
    """Return the table of the nodes, with as many columns as fit the terminal."""

    def __init__(self, report: RunReport) -> None:
        self._rows = report.nodes

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        from sfapp.views.live_tables import NODE_COLUMNS

        columns = list(NODE_COLUMNS)
        table = self._table(columns)
        for name in _DISPENSABLE:
            if console.measure(table, options=options.update_width(_WIDEST)).maximum <= options.max_width:
                break
            columns = [column for column in columns if column.field != name]
            table = self._table(columns)
        yield table
        if len(self._rows) > _MOST_NODES:
            yield Text(f"… and {len(self._rows) - _MOST_NODES:,} more nodes", style="dim")

    def _table(self, columns: Sequence[TableColumn]) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            is_host = column.field == "hostname"
            table.add_column(
                column.title,
                justify="left" if is_host else "right",
                no_wrap=True,
                max_width=_LONGEST_HOST if is_host else None,
            )
        for row in self._rows[:_MOST_NODES]:
            shown = (row.get(column.shown) for column in columns)
            table.add_row(
                *(Text("–" if value is None else printable(str(value), _LONGEST_CELL)) for value in shown)
            )
        return table


class _Grid:
    """Return the grid of the ranks: one tile per rank, at least one line per node."""

    def __init__(self, report: RunReport) -> None:
        self._report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        marks = _marks(self._report)
        width = len(str(max(marks, default=0)))
        room = (options.max_width - _NODE_WIDTH) // (width + 2)
        tiles = next((count for count in _TILES if count <= room), 1)
        members: dict[int, list[int]] = {}
        for rank in self._report.ranks:
            members.setdefault(rank.node_rank, []).append(rank.rank)
        drawn = 0
        for node, ranks in sorted(members.items()):
            for first in range(0, len(ranks), tiles):
                drawn += 1
                if drawn > _MOST_LINES:
                    yield Text("… and more ranks", style="dim")
                    return
                line = Text(f"{f'node {node}' if first == 0 else '':<{_NODE_WIDTH}}")
                for number in ranks[first : first + tiles]:
                    mark, style = marks[number]
                    line.append(f" {number:>{width}}{mark}", style=style)
                yield line


def _marks(report: RunReport) -> dict[int, tuple[str, str]]:
    """Return the mark of every rank and its style."""
    from sfapp.views import text as words

    named = frozenset(_named(report))
    middle = statistics.median(
        [rank.recent_ns for rank in report.ranks if rank.recent_ns is not None] or [0.0]
    )
    found: dict[int, tuple[str, str]] = {}
    for rank in report.ranks:
        if rank.has_left:
            found[rank.rank] = "-", "dim"
        elif (rank.no_data_for_s or 0.0) > words.STALE_S:
            found[rank.rank] = "!", "bold red"
        elif rank.rank in named:
            found[rank.rank] = "*", "bold yellow"
        elif (rank.recent_ns or 0.0) > middle * (1 + _SLOW):
            found[rank.rank] = "+", "yellow"
        else:
            found[rank.rank] = " ", "green"
    return found


def _named(report: RunReport) -> Sequence[int]:
    """Return the ranks that hold a job which stands still, else those that the verdict on the last steps
    names, else that on the newest window."""
    newest, rolling = report.newest_window, report.rolling
    if report.standstill is not None:
        return report.standstill.holders
    if rolling is not None:
        return () if rolling.finding is None else rolling.finding.ranks
    if newest is None or newest.aim_rank is None or not newest.needs_attention:
        return ()
    return (newest.aim_rank,)
