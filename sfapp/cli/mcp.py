"""``sfapp mcp``: answer assistants over the Model Context Protocol."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import click

from sfapp.cli.loading import modules_loading
from sfapp.cli.packet_paths import PacketPath, storage_options
from sfapp.cli.serve import read_token
from sfapp.storage import StoragePath


@click.command()
@click.argument("paths", nargs=-1, required=True, type=PacketPath(), metavar="PATH...")
@storage_options
@click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    help="Serve streamable HTTP at http://HOST:PORT/mcp instead of stdio; port 0 takes any free port.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --http: file whose first line is the secret that every client must present, of 16 characters "
    "or more; SFAPP_TOKEN holds the secret itself. Required for addresses beyond this machine.",
)
@click.option(
    "--db",
    type=click.Path(path_type=Path),
    help="Keep results in this file, so that the next start reads new packets only. No other process may "
    "have it open, `sfapp serve` included.",
)
def mcp(
    paths: tuple[StoragePath, ...], address: str | None, token_file: Path | None, db: Path | None
) -> None:
    """Answer assistants about the packets under PATH..., over the Model Context Protocol.

    Assistants list runs and problems, read verdicts with their evidence, compare windows, and find the rank
    that blocks a job. All tools are read-only, and nothing outside of PATH... is read. An assistant starts
    this command by itself and talks to it over stdin and stdout.

    \b
    sfapp mcp packets
    sfapp mcp packets dumps --http 127.0.0.1:8643
    """
    if token_file is not None and address is None:
        raise click.UsageError("--token-file needs --http")
    with modules_loading():
        from sfapp.assistants.mcp_server import serve_stdio
        from sfapp.service.workspace import Workspace
        from sfapp.store import Store
    with ExitStack() as resources:
        if address is not None:
            with modules_loading():
                from sfapp.assistants.http_transport import HttpOptions, serve_http
            token = os.environ.get("SFAPP_TOKEN") if token_file is None else read_token(token_file)
            options = HttpOptions.parse(address, token)
            listener = resources.enter_context(options.listen())
        workspace = Workspace(resources.enter_context(Store.open(paths, db, memory=db is None)), paths)
        resources.callback(workspace.close)
        if address is None:
            import asyncio

            # A read from a terminal cannot be cancelled, so Ctrl-C ends the process at once.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            asyncio.run(serve_stdio(workspace))
        else:
            serve_http(
                workspace,
                options,
                listener,
                announce=lambda at: click.echo(f"sfapp answers assistants at {at} (Ctrl-C stops)"),
                abandon=lambda: os._exit(0),
            )
