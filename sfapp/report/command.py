"""Build the command that reproduces a report from the same packets."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sfapp.model.view import ViewState, WindowKey
from sfapp.terminal import encodable

TITLE = "sfapp report"
"""Default title of a report."""


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
    """Return the command line, without defaults.

    Args:
        paths: paths of the packets.
        incident: the incident's id or exported file; None for a report on windows.
        view: how windows are judged; an incident stores this itself.
    """
    words = ["sfapp", "report", *([incident] if incident else []), *paths]
    for key in windows:
        words += ["--window", str(key)]
    judged = ViewState() if view is None else view
    for name, value in judged.gates.changed().items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    default = ViewState()
    for name in ("frontier", "baseline", "group", "reference"):
        value = getattr(judged, name)
        if value != getattr(default, name):
            words += [f"--{name}", str(value)]
    if judged.fix is not None:
        words += ["--what-if", str(judged.fix)]
    if title != TITLE and incident is None:
        words += ["--title", title]
    return encodable(shlex.join([*words, *(["--redact"] if redact else []), "-o", output]))
