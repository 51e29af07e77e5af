"""``sfapp compact``: reduce old windows to their verdicts and some of their steps."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import click

from sfapp.cli.console_messages import message, message_option, print_json, shows_progress
from sfapp.cli.packet_paths import PacketPath
from sfapp.cli.shared_options import FiniteRange
from sfapp.cli.signals import cancelled_by_signals
from sfapp.storage import StoragePath
from sfapp.terminal import printable

_MOST_SHOWN = 10
_MOST_DAYS = 100_000
"""Before them lies no year in which a window can have ended by a clock that works."""


@click.command()
@click.argument("folder", type=PacketPath(file_okay=False))
@click.option(
    "--older-than",
    "days",
    type=FiniteRange(min=0),
    required=True,
    metavar="DAYS",
    help="Only windows that ended so many days ago or earlier.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=2),
    default=10,
    show_default=True,
    help="Number of steps that are kept of a window, at equal distances.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; show what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@message_option
def compact(folder: StoragePath, days: float, steps: int, dry_run: bool, as_json: bool) -> None:
    """Reduce old windows of the packets in FOLDER to their verdicts and some of their steps.

    Kept as they are: windows of problems and their neighbours, windows to which a note or an incident refers,
    those with which the others of a run are compared, the last of each run, and those with operator events.
    Verdicts go to FOLDER/verdicts. Temporary files that killed processes left are removed after a day. Ctrl-C
    stops after the current window; the next call does the rest.

    \b
    sfapp compact packets --older-than 30 --dry-run
    sfapp compact packets --older-than 30
    """
    from sfapp.service.thinning import thin_packets

    if not days <= _MOST_DAYS:
        raise click.UsageError(f"--older-than takes at most {_MOST_DAYS:,} days")
    if not isinstance(folder, Path):
        raise click.UsageError(
            f"{folder}: windows in a bucket are not thinned. Keep their verdicts with `sfapp ingest --to`, "
            "and let a lifecycle rule of the bucket remove old packets"
        )
    is_shown = shows_progress()

    def show(what: str, done: int, total: int) -> None:
        if is_shown:
            click.echo(f"\r\x1b[K{what} {done:,} of {total:,}", nl=False, err=True)

    with cancelled_by_signals() as cancel:
        plan, report = thin_packets(
            folder.resolve(), timedelta(days=days), steps, dry_run=dry_run, progress=show, cancel=cancel
        )
    if is_shown:
        click.echo("\r\x1b[K", nl=False, err=True)
    if as_json:
        windows = [str(key) for key, _, _ in plan.windows]
        found = {"windows": windows, "bytes": plan.bytes, "kept": plan.kept}
        print_json(found | {"report": asdict(report)})
    elif dry_run:
        click.echo(f"{len(plan.windows):,} windows of {plan.bytes / 1e6:,.1f} MB would be thinned; kept:")
        for reason, number in sorted(plan.kept.items(), key=lambda one: -one[1]):
            click.echo(f"  {number:>9,}  {reason}")
    else:
        click.echo(
            f"{report.thinned:,} windows thinned to {steps} steps: {report.before / 1e6:,.1f} MB became "
            f"{report.after / 1e6:,.1f} MB; their verdicts are in {printable(str(folder / 'verdicts'))}"
        )
    if report.leftovers:
        message(f"sfapp: removed {report.leftovers:,} temporary files of processes that were killed")
    for line in report.skipped[:_MOST_SHOWN]:
        message(f"sfapp: not thinned: {printable(line)}")
    if (more := len(report.skipped) - _MOST_SHOWN) > 0:
        message(f"sfapp: not thinned: {more:,} more")
    if report.cancelled:
        message("sfapp: stopped; the next call does the rest")
    if report.cancelled or report.skipped:
        sys.exit(1)
