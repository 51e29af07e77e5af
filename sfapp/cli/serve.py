"""``sfapp serve``: browse packets in the browser."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sfapp.cli.console_messages import print_if_possible
from sfapp.cli.loading import modules_loading
from sfapp.cli.packet_paths import PacketPath, storage_options
from sfapp.cli.shared_options import FiniteRange
from sfapp.cli.signals import call_when_parent_ends, temporary_folder
from sfapp.errors import ServeError
from sfapp.files import read_regular
from sfapp.storage import StoragePath

if TYPE_CHECKING:
    from sfapp.app.server import ServeOptions

LARGEST_TOKEN_FILE = 1 << 16
"""Maximum size of a ``--token-file`` in bytes: a larger file is a mistake."""


@click.command()
@click.argument("paths", nargs=-1, required=True, type=PacketPath(exists=False), metavar="PATH...")
@storage_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8642,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes any free port.",
)
@click.option(
    "--db",
    type=click.Path(path_type=Path),
    help="File of the store [default: .sfapp/store.duckdb next to the packets].",
)
@click.option("--memory", is_flag=True, help="Keep the store in memory, not in a file.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File whose first line is the secret that every visitor must present, of 16 characters or more; "
    "SFAPP_TOKEN holds the secret itself. Required for addresses beyond this machine.",
)
@click.option(
    "--token",
    envvar="SFAPP_TOKEN",
    help="The secret as an argument; other users of this machine can read it in the process list.",
)
@click.option(
    "--public-url",
    metavar="URL",
    help="Address under which a reverse proxy serves the app, as https://HOST/PATH (docs/security.md).",
)
@click.option(
    "--otlp",
    metavar="URL",
    help="Send the metrics of /metrics to a collector over OTLP, as http://HOST:4318 (docs/alerts.md).",
)
@click.option(
    "--otlp-interval",
    type=FiniteRange(1, 86_400),
    default=60.0,
    show_default=True,
    help="Seconds from one export over OTLP to the next.",
)
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser.")
@click.option("--attached", is_flag=True, hidden=True, help="End when stdin ends.")
def serve(
    paths: tuple[StoragePath, ...],
    host: str,
    port: int,
    db: Path | None,
    memory: bool,
    token_file: Path | None,
    token: str | None,
    public_url: str | None,
    otlp: str | None,
    otlp_interval: float,
    browser: bool,
    attached: bool,
) -> None:
    """Browse the packets under PATH... in the browser: verdicts, thresholds, plots.

    New packets appear as they are written. The server connects to no other machine, except to an object
    store that PATH names and a collector that --otlp names. Stop it with Ctrl-C.

    \b
    sfapp serve packets
    sfapp serve packets --port 0 --no-browser
    sfapp serve s3://bucket/packets --db fleet.duckdb
    """
    if db is not None and memory:
        raise click.UsageError("--db and --memory exclude each other")
    if token_file is not None:
        token = read_token(token_file)
    if attached:
        call_when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM))
    how_to_stop = "" if attached else " (Ctrl-C stops)"
    with temporary_folder("sfapp-") as scratch:
        serve_from(
            scratch,
            lambda options: options(
                paths=paths,
                host=host,
                port=port,
                db=db,
                memory=memory,
                token=None if token is None else token.strip(),
                public_url=public_url,
                otlp=otlp,
                otlp_interval=otlp_interval,
                browser=scratch if browser else None,
            ),
            announce=lambda address: print_if_possible(f"sfapp is at {address}{how_to_stop}"),
        )


def serve_from(
    scratch: Path, choose: Callable[[type[ServeOptions]], ServeOptions], announce: Callable[[str], None]
) -> None:
    """Load the app and serve until a signal.

    Args:
        scratch: temporary folder of this server, which is removed if stopping takes too long.
        choose: makes the options, whose class is loaded with the app.
        announce: called with the address once the server responds.
    """
    # NiceGUI chooses its folder on import, by default one in the current directory.
    os.environ["NICEGUI_STORAGE_PATH"] = str(scratch)
    # Arrow, too: its own allocator keeps what each thread has freed, some MB more every minute of live pages.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    with modules_loading(), _without(*UNUSED):
        from sfapp.app.server import ServeOptions
        from sfapp.app.server import serve as run

    def abandon() -> None:
        shutil.rmtree(scratch, ignore_errors=True)
        os._exit(0)

    run(choose(ServeOptions), announce=announce, abandon=abandon)


def read_token(path: Path, option: str = "--token-file") -> str:
    """Return the first line of a file, without spaces around it.

    Args:
        option: the option that names it, for messages.

    Raises:
        ServeError: it cannot be read.
    """
    try:
        content = read_regular(path, LARGEST_TOKEN_FILE).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ServeError(f"{option} {path} cannot be read: {error}") from None
    return content.partition("\n")[0].strip()


UNUSED = ("aiohttp", "requests", "tornado", "websocket")
"""Modules that NiceGUI's websocket library imports if they are installed, for clients and a server that sfapp
never starts. They would take a fifth of the time until the first page is served."""


@contextmanager
def _without(*modules: str) -> Iterator[None]:
    """Hide these modules from imports within the block."""
    hidden = [module for module in modules if module not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: an import of it fails
    try:
        yield
    finally:
        for module in hidden:
            del sys.modules[module]
