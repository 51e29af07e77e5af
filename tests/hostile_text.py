"""Text that does harm where a program reads it as markup, as a formula or as commands to a terminal."""

from __future__ import annotations

from dataclasses import replace

from sfapp.model import Window, stage_hash
from sfapp.model.stages import RESIDUAL

SCRIPT = "<img src=x onerror=window.pwned=1>"
"""Runs in a page that takes it for HTML."""

TERMINAL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\r\n\u202egnp.exe\u2066"
"""Sets the title of a terminal, clears it, colours it (C1 form), begins a line, and reverses what follows."""

MARKUP = "[l](javascript:window.pwned=2) ![p](http://evil.example/p.png) `c` $x^2$ | {{7*7}}"
"""Links, pictures, code, mathematics, the border of a table, and what templates evaluate."""

HOSTILE_TEXT = f"=HYPERLINK(1) {SCRIPT} {MARKUP} {TERMINAL}"
"""All of it, beginning with a formula; short enough for a stage's name."""


def with_hostile_names(window: Window) -> Window:
    """Return the window with hostile names of its run, its stages, hosts, roles and attributes."""
    stages = tuple(name if name == RESIDUAL else f"{HOSTILE_TEXT}.{name}" for name in window.stages)
    manifest = replace(window.manifest, run_id=HOSTILE_TEXT, stages=stages, stage_hash=stage_hash(stages))
    names = (HOSTILE_TEXT,) * len(window.ranks)
    attributes = {"kernel": names, HOSTILE_TEXT: names}
    ranks = replace(window.ranks, hostname=names, role=names, attributes=attributes)
    return replace(window, manifest=manifest, ranks=ranks)
