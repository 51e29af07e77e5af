"""``sfapp stacks``: show what the threads of all ranks of a running job do, without stopping it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sfapp.cli.capture import Ranks, author_name
from sfapp.cli.console_messages import message, message_option, print_json
from sfapp.cli.top import FolderOrAddress
from sfapp.errors import CaptureError
from sfapp.model.capture import MAX_STACK_RANKS
from sfapp.terminal import printable


@click.command()
@click.argument("where", type=FolderOrAddress(exists=True, path_type=Path), metavar="WHERE")
@click.argument("run", required=False)
@click.option("--ranks", type=Ranks(MAX_STACK_RANKS), metavar="0,3,8-11", help="Ranks to ask [default: all].")
@click.option("--all-threads", is_flag=True, help="Show all threads, not only the training threads.")
@click.option("--last", is_flag=True, help="Show the newest stacks, and request none.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--reason", default="", help="Reason, stored with the request.")
@message_option
@click.option(
    "--token",
    envvar="SFAPP_TOKEN",
    help="Token of the app, if it requires one. SFAPP_TOKEN keeps it out of the list of processes.",
)
def stacks(
    where: Path | str,
    run: str | None,
    ranks: tuple[int, ...] | None,
    all_threads: bool,
    last: bool,
    as_json: bool,
    reason: str,
    token: str | None,
) -> None:
    """Show the Python stacks of all ranks of a running job, without stopping it. Equal stacks are shown once,
    those of the fewest ranks first.

    WHERE is the folder that the job's recorders or aggregator write to, or the folder of one run in it; RUN
    the run [default: the one that wrote last]. The stacks are kept there. WHERE may also be the address of a
    running app, which shows the newest stacks and requests none.

    \b
    sfapp stacks packets
    sfapp stacks packets t7 --ranks 3,8-11 --all-threads
    sfapp stacks http://node0:8642 t7
    """
    document = (
        _from_app(where, run, token, all_threads)
        if isinstance(where, str)
        else _from_folder(where, run, ranks or (), reason, all_threads, last)
    )
    if as_json:
        print_json(document, indent=2)
        return
    for line in document["lines"]:
        click.echo(printable(line))


def _from_folder(
    where: Path, run: str | None, ranks: tuple[int, ...], reason: str, all_threads: bool, last: bool
) -> dict[str, Any]:
    """Request stacks and wait for them, or read the newest ones.

    Raises:
        CaptureError: there is no such run, or no rank has answered.
    """
    from sfapp.packets.stack_requests import find_run
    from sfapp.service.stacks import newest_stacks, request_stacks, wait_for_stacks

    place = find_run(where, run)
    if last:
        found = newest_stacks(place.root, place.run_id)
    else:
        asked = request_stacks(place, ranks, reason=reason, asked_by=author_name())
        count = len(asked.state.request.ranks)
        message(f"{printable(place.run_id)}: requested stacks of {count} ranks")
        found = wait_for_stacks(place.root, asked)
        if not found.stacks:
            why = "; ".join(why for why, _ in found.missing)
            raise CaptureError(f"no rank sent its stacks: {printable(why)}")
    return found.document(all_threads)


def _from_app(where: str, run: str | None, token: str | None, all_threads: bool) -> dict[str, Any]:
    from sfapp.cli.live_client import AppSource

    return AppSource(where, token).stacks(run, all_threads)
