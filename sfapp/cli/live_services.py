"""The live side of ``sfapp run``: an aggregator in the whole job, a relay on each node, an app if wanted."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sfapp.cli.launch_config import Home
from sfapp.cli.supervisor import Service
from sfapp.errors import RunError
from sfapp.files import write_atomic

if TYPE_CHECKING:
    from sfapp.stream.security import Keys

STREAM_VARIABLE = "SFAPP_STREAM"
KEYS_VARIABLE = "SFAPP_STREAM_KEYS"

_START_SECONDS = 60.0
_LAST_SECONDS = 15.0
"""How long an aggregator waits for ranks of other nodes, once this node's have ended."""
_LAST_HERE_SECONDS = 1.0
_STOP_SECONDS = 10.0
_LONGEST_PARENT = 80  # a Unix socket's path holds 107 bytes

_KEYS_SECONDS = 900.0
"""How long a node waits for the keys; as long as torchrun waits for nodes."""
_SAY_AFTER_SECONDS = 10.0
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """What runs beside training.

    Attributes:
        out: folder for packets.
        nodes: of the job.
        home, port: where the aggregator is. With one node it is not on the network at all.
        relay_port: where this node's ranks reach the relay, on 127.0.0.1; None for a private socket.
        ui_port: of the app beside the aggregator; None for no app.
    """

    out: Path
    nodes: int
    home: Home
    port: int
    relay_port: int | None
    ui_port: int | None


def can_stream() -> bool:
    """Whether the library that it takes is installed."""
    return find_spec("zmq") is not None


@contextmanager
def beside_training(options: LiveOptions, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Everything live that this node runs, while this lasts.

    Yields:
        What training finds in its environment.

    Raises:
        RunError: the aggregator does not start, or its node leaves no keys.
        StreamError: the session's keys cannot be written or read.
    """
    with ExitStack() as stack:
        socket = stack.enter_context(_ranks_endpoint(options.relay_port))
        if options.nodes == 1:
            without_keys = {name: value for name, value in environ.items() if name != KEYS_VARIABLE}
            _aggregate(stack, options, socket, without_keys)
            yield {STREAM_VARIABLE: socket, KEYS_VARIABLE: ""}
        else:
            keys = _join(stack, options, socket, environ)
            yield {STREAM_VARIABLE: socket, KEYS_VARIABLE: keys.for_clients().text()}


def _join(stack: ExitStack, options: LiveOptions, socket: str, environ: Mapping[str, str]) -> Keys:
    """Several nodes: one of them has the aggregator, each has a relay, and nothing goes without keys."""
    from sfapp.stream.security import Keys

    home = options.home
    keys = Keys.from_environment()
    if keys is None and home.listen is not None:
        keys = stack.enter_context(_new_keys(keys_path(options)))
    elif keys is None:
        keys = _keys_of_aggregator(keys_path(options))
    if home.listen is not None:
        _aggregate(stack, options, _tcp(home.listen, options.port), {**environ, KEYS_VARIABLE: keys.text()})
    for_clients = {**environ, KEYS_VARIABLE: keys.for_clients().text()}
    relay = Service("relay", [_tcp(home.host, options.port), "--listen", socket, "--attached"], for_clients)
    stack.callback(relay.stop, _STOP_SECONDS)
    return keys


def _aggregate(stack: ExitStack, options: LiveOptions, listen: str, environ: Mapping[str, str]) -> None:
    wait = _LAST_HERE_SECONDS if options.nodes == 1 else _LAST_SECONDS
    arguments = [str(options.out), "--listen", listen, "--attached", str(wait)]
    service = Service("aggregate", arguments, environ)
    stack.callback(service.stop, wait + _STOP_SECONDS)
    service.wait_ready(_START_SECONDS)
    if options.ui_port is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        browser = "--browser" if environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY") else "--no-browser"
        arguments = [str(options.out), "--port", str(options.ui_port), browser, "--attached"]
        stack.callback(Service("serve", arguments, environ, again=False).stop, _STOP_SECONDS)


def _tcp(host: str, port: int) -> str:
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def keys_path(options: LiveOptions) -> Path:
    """Where the nodes of a session find its keys: in the folder for packets, by the aggregator's address."""
    host = options.home.host.replace(":", "_").replace("/", "_")
    return options.out / ".sfapp" / f"{host}-{options.port}.keys"


@contextmanager
def _new_keys(path: Path) -> Iterator[Keys]:
    """New keys for this session, in a file that only its owner reads and that is gone afterwards. Keys that a
    session left which could not end stay: other nodes may have them already."""
    from sfapp.stream.security import Keys

    if not path.exists():
        try:
            write_atomic(path, Keys.make().text().encode(), mode=0o600, sync=False)
        except OSError as error:
            raise RunError(f"the keys cannot be written to {path}: {error.strerror}") from error
    try:
        yield Keys.load(path)
    finally:
        path.unlink(missing_ok=True)


def _keys_of_aggregator(path: Path) -> Keys:
    """The session's keys, once the aggregator's node has written them."""
    from sfapp.stream.security import Keys

    begin, has_said = time.monotonic(), False
    while not path.exists():
        waited = time.monotonic() - begin
        if waited > _KEYS_SECONDS:
            raise RunError(
                f"no keys of the aggregator in {path}: --out must be a folder that all nodes share, or else "
                f"give all of them keys by {KEYS_VARIABLE} (`sfapp aggregate --make-keys`), or say --no-live"
            )
        if waited > _SAY_AFTER_SECONDS and not has_said:
            has_said = True
            click.echo(f"sfapp: waiting for the aggregator's node to leave its keys in {path}", err=True)
        time.sleep(_LOOK_SECONDS)
    return Keys.load(path)


@contextmanager
def _ranks_endpoint(port: int | None) -> Iterator[str]:
    """Where this node's ranks connect: a socket in a folder that only this user enters, or a port."""
    if port is not None:
        yield f"tcp://127.0.0.1:{port}"
        return
    parent = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(
        prefix="sfapp-", dir=parent if len(parent) < _LONGEST_PARENT else "/tmp"
    ) as private:
        yield f"ipc://{private}/ranks"
