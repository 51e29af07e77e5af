"""Paths of packets on the command line, local or in an object store, and the options of the latter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from sfapp.storage import StorageOptions, StoragePath, location

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = "sfapp.storage-options"


class PacketPath(click.ParamType[StoragePath]):
    """Packet file or folder, or its address in an object store."""

    name = "path"

    def __init__(self, *, exists: bool = True, file_okay: bool = True) -> None:
        """Create the type.

        Args:
            exists: whether a local path must exist. file_okay: whether it may be a file.
        """
        self._local = click.Path(exists=exists, file_okay=file_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StoragePath:
        path = location(value, given_storage_options(ctx))
        return self._local.convert(path, param, ctx) if isinstance(path, Path) else path


def storage_options(command: Command) -> Command:
    """Add ``--storage-option``, for ``PacketPath`` and ``given_storage_options``."""
    return click.option(
        "--storage-option",
        multiple=True,
        is_eager=True,  # before the paths that it is for
        expose_value=False,
        callback=_keep,
        metavar="KEY=VALUE",
        help="Option for packets in an object store, such as region=eu-central-1; may be repeated "
        "(docs/fleet.md). Keep secrets in environment variables: other users can read arguments.",
    )(command)


def _keep(context: click.Context, _: click.Parameter, texts: tuple[str, ...]) -> None:
    context.meta[_OPTIONS] = StorageOptions.parse(texts)


def storage_arguments() -> list[str]:
    """Return the running command's ``--storage-option`` for a process that it starts."""
    given = given_storage_options()
    return [text for name, value in given.items() for text in ("--storage-option", f"{name}={value}")]


def given_storage_options(context: click.Context | None = None) -> Mapping[str, str]:
    """Return the storage options of a command, by default the running one."""
    found: Mapping[str, str] = (context or click.get_current_context()).meta.get(_OPTIONS, {})
    return found
