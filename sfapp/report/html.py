"""A report as one HTML file: self-contained, for screen (light and dark) and print.

The plot library and the figures lie in it compressed. The page's own policy lets exactly two scripts run, by
their hashes: the loader below, and the library that it unpacks.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from sfapp.assets import PLOTLY, assets
from sfapp.report.document import Compared, Remark, Report, Section, Shown

_TEMPLATES = Environment(
    loader=PackageLoader("sfapp.report", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
for kind in (Section, Shown, Compared, Remark):
    _TEMPLATES.tests[kind.__name__.lower()] = lambda part, kind=kind: isinstance(part, kind)


def to_html(report: Report) -> str:
    """The whole page."""
    loader = _TEMPLATES.get_template("report.js").render()
    bundle = (assets() / PLOTLY).read_text(encoding="utf-8")
    plots = [{"light": plot.light, "dark": changes(plot.light, plot.dark)} for plot in report.plots]
    return _TEMPLATES.get_template("report.html").render(
        report=report,
        windows=report.of(Section),
        style=_TEMPLATES.get_template("report.css").render(),
        loader=loader,
        scripts=f"'{_hash(loader)}' '{_hash(bundle)}'",
        bundle=_packed(bundle.encode()),
        plots=_packed(msgspec.json.encode(plots)),
    )


def changes(old: Any, new: Any, at: tuple[str | int, ...] = ()) -> list[list[Any]]:
    """What turns one JSON value into another: ``[path, value]`` to set, ``[path]`` to take away.

    Light and dark differ in colours only, so the second theme costs a few hundred bytes a plot.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        gone = [[[*at, key]] for key in old if key not in new]
        kept = [change for key in new if key in old for change in changes(old[key], new[key], (*at, key))]
        return gone + kept + [[[*at, key], value] for key, value in new.items() if key not in old]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            change
            for place, (a, b) in enumerate(zip(old, new, strict=True))
            for change in changes(a, b, (*at, place))
        ]
    return [] if old == new else [[list(at), new]]


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")


def _hash(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode('ascii')}"
