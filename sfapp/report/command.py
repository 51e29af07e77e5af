"""The command that reproduces a report from the same packets."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sfapp.model.view import ViewState, WindowKey

TITLE = "sfapp report"
"""Title of a report without one of its own."""


def command(
    paths: Sequence[str],
    output: str,
    *,
    incident: str | None = None,
    windows: Sequence[WindowKey] = (),
    view: ViewState | None = None,
    title: str = TITLE,
    redact: bool = False,
) -> str:
    """Return the command line; defaults are left out.

    Args:
        paths: of the packets.
        incident: its id or the file it was exported to; None for a report on windows.
        view: how windows are judged; an incident holds this itself.
    """
    said = ["sfapp", "report", *([incident] if incident else []), *paths]
    for key in windows:
        said += ["--window", str(key)]
    judged = ViewState() if view is None else view
    for name, value in judged.gates.changed().items():
        said += [f"--{name.replace('_', '-')}", str(value)]
    default = ViewState()
    for name in ("frontier", "baseline", "group", "reference"):
        value = getattr(judged, name)
        if value != getattr(default, name):
            said += [f"--{name}", str(value)]
    if title != TITLE and incident is None:
        said += ["--title", title]
    return shlex.join([*said, *(["--redact"] if redact else []), "-o", output])
