"""Start the live services of ``sfapp run``: one aggregator per job, a relay per node and, on request, the
app."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sfapp.cli.launch_config import (
    AGGREGATOR_OFFSET,
    MASTER_PORT,
    AggregatorAddress,
    Layout,
    LivePorts,
    aggregator_address,
)
from sfapp.cli.packet_paths import storage_arguments
from sfapp.cli.supervisor import Service
from sfapp.errors import MissingExtraError, RunError
from sfapp.files import write_atomic
from sfapp.storage import StoragePath

if TYPE_CHECKING:
    from sfapp.stream.encryption import Keys

STREAM_VARIABLE = "SFAPP_STREAM"
KEYS_VARIABLE = "SFAPP_STREAM_KEYS"

_START_SECONDS = 60.0
_LAST_SECONDS = 15.0
"""Seconds that an aggregator waits for ranks of other nodes once this node's ranks have ended."""
_LAST_HERE_SECONDS = 1.0
_STOP_SECONDS = 10.0
_LONGEST_PARENT = 80  # The path of a Unix socket has at most 107 bytes.

_KEYS_SECONDS = 900.0
"""Seconds that a node waits for the session's keys, equal to torchrun's wait for nodes."""
_NOTICE_AFTER_SECONDS = 10.0
_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """Options of the live services.

    Attributes:
        out: folder or bucket for packets. storage: arguments for the bucket.
        nodes: number of nodes of the job.
        aggregator, port: address of the aggregator. With one node it does not listen on the network.
        relay_port: port on 127.0.0.1 through which this node's ranks reach the relay; None for a private
            socket.
        ui_port: port of the app on the aggregator's node; None for no app.
        standstill_after: seconds without a step after which the job stands still; 0 to not look for it.
    """

    out: StoragePath
    storage: Sequence[str]
    nodes: int
    aggregator: AggregatorAddress
    port: int
    relay_port: int | None
    ui_port: int | None
    standstill_after: float


def can_stream() -> bool:
    """Return whether pyzmq is installed."""
    return find_spec("zmq") is not None


def start_live_services(
    stack: ExitStack,
    layout: Layout,
    out: StoragePath,
    host: str | None,
    ports: LivePorts,
    standstill_after: float,
) -> None:
    """Start this node's part of live streaming until the stack is left, and set the ranks' environment.

    Raises:
        MissingExtraError: pyzmq is not installed.
    """
    if not can_stream():
        raise MissingExtraError("live streaming needs pyzmq: pip install 'sfapp[stream]'")
    options = LiveOptions(
        out=out,
        storage=storage_arguments(),
        nodes=layout.nodes,
        aggregator=aggregator_address(layout, host, os.environ),
        port=ports.aggregator or (layout.master_port or MASTER_PORT) + AGGREGATOR_OFFSET,
        relay_port=ports.relay,
        ui_port=ports.ui,
        standstill_after=standstill_after,
    )
    os.environ.update(stack.enter_context(live_services(options, dict(os.environ))))


@contextmanager
def live_services(options: LiveOptions, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Run this node's live services until the context is left.

    Yields:
        The environment variables that the training processes need.

    Raises:
        RunError: the aggregator does not start, or its node does not provide keys.
        StreamError: the session's keys cannot be written or read.
    """
    with ExitStack() as stack:
        socket = stack.enter_context(_ranks_endpoint(options.relay_port))
        if options.nodes == 1:
            without_keys = {name: value for name, value in environ.items() if name != KEYS_VARIABLE}
            _start_aggregator(stack, options, socket, without_keys)
            yield {STREAM_VARIABLE: socket, KEYS_VARIABLE: ""}
        else:
            keys = _start_with_keys(stack, options, socket, environ)
            yield {STREAM_VARIABLE: socket, KEYS_VARIABLE: keys.for_clients().text()}


def _start_with_keys(stack: ExitStack, options: LiveOptions, socket: str, environ: Mapping[str, str]) -> Keys:
    """Start this node's services of a job with several nodes, and return the session's keys.

    One node runs the aggregator and each runs a relay. All connections are authenticated.
    """
    from sfapp.stream.encryption import Keys

    address = options.aggregator
    keys = Keys.from_environment()
    if keys is None and address.listen is not None:
        keys = _session_keys(keys_path(options))
    elif keys is None:
        keys = _wait_for_keys(keys_path(options))
    if address.listen is not None:
        _start_aggregator(
            stack, options, _tcp(address.listen, options.port), {**environ, KEYS_VARIABLE: keys.text()}
        )
    for_clients = {**environ, KEYS_VARIABLE: keys.for_clients().text()}
    relay = Service(
        "relay", [_tcp(address.host, options.port), "--listen", socket, "--attached"], for_clients
    )
    stack.callback(relay.stop, _STOP_SECONDS)
    return keys


def _start_aggregator(
    stack: ExitStack, options: LiveOptions, listen: str, environ: Mapping[str, str]
) -> None:
    """Start the aggregator and, if requested, the app, and wait until the aggregator accepts connections."""
    wait = _LAST_HERE_SECONDS if options.nodes == 1 else _LAST_SECONDS
    arguments = [str(options.out), "--listen", listen, "--attached", str(wait)]
    arguments += ["--standstill-after", str(options.standstill_after), *options.storage]
    service = Service("aggregate", arguments, environ)
    stack.callback(service.stop, wait + _STOP_SECONDS)
    service.wait_ready(_START_SECONDS)
    if options.ui_port is not None and isinstance(options.out, Path):
        options.out.mkdir(parents=True, exist_ok=True)
        browser = "--browser" if environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY") else "--no-browser"
        arguments = [str(options.out), "--port", str(options.ui_port), browser, "--attached"]
        stack.callback(Service("serve", arguments, environ, restart=False).stop, _STOP_SECONDS)


def _tcp(host: str, port: int) -> str:
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def keys_path(options: LiveOptions) -> Path:
    """Return the path of a session's keys: in the folder for packets, named after the aggregator's address.

    Raises:
        RunError: packets go to a bucket, which is no place for keys.
    """
    if not isinstance(options.out, Path):
        raise RunError(
            f"several nodes need the session's keys, which are not put into {options.out}: set "
            f"{KEYS_VARIABLE} on all nodes (`sfapp aggregate --make-keys`), or pass --no-live"
        )
    host = options.aggregator.host.replace(":", "_").replace("/", "_")
    return options.out / ".sfapp" / f"{host}-{options.port}.keys"


def _session_keys(path: Path) -> Keys:
    """Return the keys in the file, or new ones, written so that only its owner can read them.

    They stay for later sessions: other nodes may have read them, of a session that was killed or of the next
    one, which may begin there while this node still waits for the end of the session before.

    Raises:
        RunError: the file cannot be written.
        StreamError: it cannot be read.
    """
    from sfapp.stream.encryption import Keys

    if not path.exists():
        try:
            write_atomic(path, Keys.make().text().encode(), mode=0o600, sync=False)
        except OSError as error:
            raise RunError(f"cannot write the session keys to {path}: {error.strerror}") from error
    return Keys.load(path)


def _wait_for_keys(path: Path) -> Keys:
    """Wait until the aggregator's node has written the session's keys, and return them."""
    from sfapp.stream.encryption import Keys

    begin, is_noticed = time.monotonic(), False
    while not path.exists():
        waited = time.monotonic() - begin
        if waited > _KEYS_SECONDS:
            raise RunError(
                f"no session keys in {path}: --out must be a folder that all nodes share. Otherwise set "
                f"{KEYS_VARIABLE} on all nodes (`sfapp aggregate --make-keys`), or pass --no-live"
            )
        if waited > _NOTICE_AFTER_SECONDS and not is_noticed:
            is_noticed = True
            click.echo(f"sfapp: waiting for the aggregator's node to write {path}", err=True)
        time.sleep(_POLL_SECONDS)
    return Keys.load(path)


@contextmanager
def _ranks_endpoint(port: int | None) -> Iterator[str]:
    """Provide the endpoint to which this node's ranks connect: a port, or a socket in a private folder."""
    if port is not None:
        yield f"tcp://127.0.0.1:{port}"
        return
    parent = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(
        prefix="sfapp-", dir=parent if len(parent) < _LONGEST_PARENT else "/tmp"
    ) as private:
        yield f"ipc://{private}/ranks"
