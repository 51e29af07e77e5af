"""``sfapp watch``: send a message when a problem begins, changes or ends, or a job stands still."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sfapp.cli.console_messages import print_if_possible
from sfapp.cli.packet_paths import given_storage_options, storage_options
from sfapp.cli.serve import LARGEST_TOKEN_FILE, read_token
from sfapp.cli.shared_options import FiniteRange
from sfapp.cli.signals import cancelled_by_signals, wait_for_stop_signal
from sfapp.cli.top import FolderOrAddress
from sfapp.errors import AlertError, DeliveryError
from sfapp.files import read_regular, user_state_folder
from sfapp.storage import location
from sfapp.terminal import printable

if TYPE_CHECKING:
    from sfapp.alerts.delivery import AlertOptions
    from sfapp.alerts.sources import AlertSource
    from sfapp.alerts.targets import AlertTarget

_OF_APPS = ("http:", "https:")


@click.command()
@click.argument("where", type=FolderOrAddress(exists=True, path_type=Path), metavar="WHERE")
@storage_options
@click.option(
    "--notify",
    "texts",
    multiple=True,
    metavar="TARGET",
    help="Where messages go: an Apprise URL, webhook+https://HOST/PATH, or command:PROGRAM. Several are "
    "possible.",
)
@click.option(
    "--notify-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with one target per line, which keeps secrets out of the list of processes; # begins a "
    "comment.",
)
@click.option(
    "--secret-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File whose first line is the secret that signs messages to webhooks; SFAPP_WEBHOOK_SECRET holds "
    "the secret itself.",
)
@click.option("--run", "run_id", help="Only problems of this run [default: of all runs].")
@click.option(
    "--link-base",
    metavar="URL",
    help="Address of the app, for a link to each problem [default: WHERE, if that is an address].",
)
@click.option(
    "--interval",
    type=FiniteRange(min=0),
    default=60.0,
    show_default=True,
    help="Shortest time between two messages in seconds; what happens meanwhile is sent together.",
)
@click.option(
    "--quiet-hours",
    "pause_texts",
    multiple=True,
    metavar="HH:MM-HH:MM",
    help="Send nothing at this time of day, and what has happened afterwards. Several are possible.",
)
@click.option("--time-zone", metavar="NAME", help="Time zone of --quiet-hours [default: this machine's].")
@click.option(
    "--state",
    "state_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that keeps what was sent [default: .sfapp/alerts.json in the folder, or a file of this user].",
)
@click.option(
    "--token",
    envvar="SFAPP_TOKEN",
    help="Token of the app, if it requires one. SFAPP_TOKEN keeps it out of the list of processes.",
)
@click.option("--once", is_flag=True, help="Send what has changed since the last call, and exit.")
@click.option("--test", "is_trial", is_flag=True, help="Send a test message to every target, and exit.")
def watch(
    where: Path | str,
    texts: Sequence[str],
    notify_file: Path | None,
    secret_file: Path | None,
    run_id: str | None,
    link_base: str | None,
    interval: float,
    pause_texts: Sequence[str],
    time_zone: str | None,
    state_path: Path | None,
    token: str | None,
    once: bool,
    is_trial: bool,
) -> None:
    """Send a message when a problem begins, changes, ends or returns, or a job stands still: each once, also
    after a restart.

    WHERE is the folder that recorders or an aggregator write to, the address of a bucket (docs/fleet.md), or
    that of a running app. The first message lists the problems that are ongoing. The exit code is 1 if --once
    or --test could not deliver.

    \b
    sfapp watch packets --notify slack://TOKENS --link-base https://sfapp.example.org
    sfapp watch s3://bucket/packets --notify slack://TOKENS
    sfapp watch http://node0:8642 --notify webhook+https://example.org/hook --secret-file secret
    sfapp watch packets --notify command:/usr/local/bin/page --quiet-hours 22:00-07:00
    sfapp watch packets --notify mailto://USER:PASSWORD@example.org --test
    """
    from sfapp.alerts.delivery import AlertOptions
    from sfapp.alerts.pauses import Pauses
    from sfapp.alerts.targets import SECRET_VARIABLE, target_of

    pauses = Pauses.of(pause_texts, time_zone)
    secret = (
        os.environ.get(SECRET_VARIABLE) if secret_file is None else read_token(secret_file, "--secret-file")
    )
    wanted = list(dict.fromkeys((*texts, *(() if notify_file is None else _lines_of(notify_file)))))
    if not wanted:
        raise click.UsageError("name a target with --notify or --notify-file")
    targets = [target_of(text, secret) for text in wanted]
    if is_trial:
        sys.exit(0 if _test(targets) else 1)
    with ExitStack() as resources:
        with cancelled_by_signals() as cancel:
            opened = _source(where, token, run_id, follows=not once, cancel=cancel)
            source = resources.enter_context(opened)
        if cancel.is_set():  # Problems that were not read yet would count as removed.
            sys.exit(1 if once else 0)
        base = link_base or source.link_base
        options = AlertOptions(interval=interval, pauses=pauses, link_base=base, once=once)
        delivered = _watch(source, targets, options, state_path or _state_of(where), run_id)
    sys.exit(0 if delivered else 1)


def _watch(
    source: AlertSource,
    targets: Sequence[AlertTarget],
    options: AlertOptions,
    state_path: Path,
    run_id: str | None,
) -> bool:
    """Notify until a signal, or once; return whether everything was delivered."""
    from sfapp.alerts.alert_state import AlertState
    from sfapp.alerts.delivery import TargetQueue, notify_once, notify_until

    with AlertState.open(state_path, run_id) as state, wait_for_stop_signal() as stop:
        queues = [TargetQueue(target, state, options, stop, _report) for target in targets]
        if options.once:
            return notify_once(stop, source, queues)
        _report(f"watching {source.place}; Ctrl-C stops")
        notify_until(stop, source, queues, _report)
    return True


def _test(targets: Sequence[AlertTarget]) -> bool:
    """Send a test message to every target; return whether all have accepted it."""
    from sfapp.alerts.delivery import send
    from sfapp.alerts.message import trial_message

    message, failed = trial_message(datetime.now(UTC)), 0
    for target in targets:
        try:
            send(target, message, threading.Event())
            _report(f"sent to {target.name}")
        except DeliveryError as error:
            failed += 1
            _report(f"not sent: {error}")
    return not failed


@contextmanager
def _source(
    where: Path | str, token: str | None, run_id: str | None, *, follows: bool, cancel: threading.Event
) -> Iterator[AlertSource]:
    from sfapp.alerts.sources import AppProblems, FolderProblems

    if isinstance(where, str) and where.startswith(_OF_APPS):
        yield AppProblems(where, token, run_id)
    else:
        path = location(where, given_storage_options())
        with FolderProblems.open(path, run_id, follows, cancel) as source:
            yield source


def _state_of(where: Path | str) -> Path:
    """Return the default path of the state: in the folder, or among the files of this user.

    Raises:
        AlertError: the user has no home directory.
    """
    if isinstance(where, Path):
        return (where if where.is_dir() else where.parent) / ".sfapp" / "alerts.json"
    digest = sha256(where.partition("?")[0].rstrip("/").encode()).hexdigest()[:16]
    try:
        return user_state_folder() / "sfapp" / f"alerts-{digest}.json"
    except FileNotFoundError as error:
        raise AlertError(f"{error.strerror}: name a file for the state with --state") from error


def _lines_of(path: Path) -> list[str]:
    """Return the targets in a file.

    Raises:
        AlertError: it cannot be read.
    """
    try:
        lines = read_regular(path, LARGEST_TOKEN_FILE).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AlertError(f"--notify-file {path} cannot be read: {error}") from None
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _report(line: str) -> None:
    print_if_possible(f"{datetime.now():%H:%M:%S} {printable(line)}")
