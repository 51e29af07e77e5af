"""``sfapp doctor``: say what this environment can record, why not the rest, and how to fix it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import click

from sfapp.cli.console_messages import print_json
from sfapp.cli.shared_options import FiniteRange
from sfapp.doctor.checks import results_of
from sfapp.doctor.readings import about, read_environment
from sfapp.doctor.results import CheckResult, can_record, document
from sfapp.terminal import printable

_COLOURS = {"ok": "green", "limited": "yellow", "failed": "red"}

_NAME_WIDTH = 15


@click.command()
@click.option(
    "--out",
    "output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("packets"),
    show_default=True,
    help="Folder that packets are to be written to.",
)
@click.option(
    "--timeout",
    type=FiniteRange(1, 600),
    default=30.0,
    show_default=True,
    help="Seconds for the import of torch and for the GPU driver.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(output: Path, timeout: float, as_json: bool) -> None:
    """Say what this environment can record, why not the rest, and how to fix it.

    Run it where training runs: in the container, as the user and with the variables of a rank. The exit code
    is 0 if steps can be recorded and what is set up works, 1 if not, and 2 for a wrong option. What is only
    limited, such as a missing extra, does not change it.

    \b
    sfapp doctor
    sfapp doctor --out /shared/packets
    srun --ntasks-per-node 1 sfapp doctor --json | jq -c '.results[] | select(.status == "failed")'
    """
    results = results_of(read_environment(output, timeout))
    if as_json:
        print_json(document(results, about()), indent=2)
    else:
        _print(results, about())
    sys.exit(0 if can_record(results) else 1)


def _print(results: Sequence[CheckResult], versions: Mapping[str, str]) -> None:
    """Print the results by area, with the remedy below what does not work."""
    shown = (
        f"sfapp {versions['sfapp']}, Python {versions['python']}, {versions['system']}, {versions['host']}"
    )
    click.echo(printable(shown))
    for area, group in groupby(results, key=lambda result: result.area):
        click.secho(f"\n{area}", bold=True)
        for result in group:
            click.secho(f"  {result.status:<8}", fg=_COLOURS[result.status], nl=False)
            click.echo(f" {result.name:<{_NAME_WIDTH}} {printable(result.found)}")
            if result.remedy:
                click.echo(f"{'':{_NAME_WIDTH + 12}}to fix: {printable(result.remedy)}")
    failed = [result.name for result in results if result.status == "failed"]
    if failed:
        click.secho(f"\nFix first: {', '.join(failed)}", fg="red", bold=True)
    else:
        click.secho("\nSteps can be recorded here", fg="green", bold=True)
