"""Find the stage and the rank that make a distributed training step slow, and state how certain that is.

Names are loaded on first use, so that ``import sfapp`` costs nothing on a training node or for ``--help``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sfapp.renamed_packages import install as install_old_names
from sfapp.sink_registry import STREAM, register_sink

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sfapp.accounting import diagnose
    from sfapp.model import Diagnosis, Gates, Window
    from sfapp.notebook import examples, open
    from sfapp.packets import read_window
    from sfapp.packets.sink import LocalSinkFactory, PacketSink
    from sfapp.recorder import Recorder

_HOMES = {
    "Diagnosis": "sfapp.model",
    "Gates": "sfapp.model",
    "Recorder": "sfapp.recorder",
    "Window": "sfapp.model",
    "diagnose": "sfapp.accounting",
    "examples": "sfapp.notebook",
    "open": "sfapp.notebook",
    "read_window": "sfapp.packets",
}

_EXTRA_OF = {"sfapp.notebook": "jupyter"}
"""The extra that installs everything for the names of a module; for other modules, the missing import
decides."""

__all__ = [
    "Diagnosis",
    "Gates",
    "Recorder",
    "Window",
    "__version__",
    "diagnose",
    "examples",
    "open",
    "read_window",
]


def _stream_sink(stream: Any, local_sink: LocalSinkFactory) -> PacketSink:
    """Return a streaming sink; this imports the stream."""
    from sfapp.stream.stream_writer import stream_sink

    return stream_sink(stream, local_sink)


register_sink(STREAM, _stream_sink)
install_old_names()


def __getattr__(name: str) -> Any:
    """Import a public name on its first use.

    Raises:
        AttributeError: there is no such name.
        MissingExtraError: it needs an optional dependency that is not installed.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'sfapp' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(home), name)
    except ImportError as missing:
        from sfapp.errors import MissingExtraError

        error = MissingExtraError.of(missing, f"sfapp.{name}", _EXTRA_OF.get(home))
        if error is None:
            raise
        raise error from missing


def __dir__() -> list[str]:
    return sorted(__all__)
