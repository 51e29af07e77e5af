"""Write a report as a single self-contained HTML file: it opens from ``file://``, in light and dark, and
prints.

The plot library and the figures are embedded, compressed. The page's content security policy allows exactly
two scripts by their hashes: the loader, and the library that it unpacks.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from typing import Any

import msgspec
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from sfapp.assets import PLOTLY, assets
from sfapp.report.parts import CollectedPlot, Remark, Report, ReportComparison, Section
from sfapp.terminal import without_controls

_TEMPLATES = Environment(
    loader=PackageLoader("sfapp.report", "templates"),
    autoescape=True,
    finalize=lambda value: without_controls(value) if type(value) is str else value,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
for name, kind in (
    ("section", Section),
    ("collected_plot", CollectedPlot),
    ("comparison", ReportComparison),
    ("remark", Remark),
):
    _TEMPLATES.tests[name] = lambda part, kind=kind: isinstance(part, kind)


def to_html(report: Report) -> str:
    """Return the whole page."""
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
        plots=_packed(msgspec.json.encode(coarse(plots))),
    )


def changes(old: Any, new: Any, at: tuple[str | int, ...] = ()) -> list[list[Any]]:
    """Return the changes from one JSON value to another: ``[path, value]`` to set, ``[path]`` to delete.

    Light and dark differ only in colours, so the second theme takes a few hundred bytes per plot.
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


def coarse(value: Any) -> Any:
    """Return plain data of figures with their arrays of float32 rounded to five digits, to compress better:
    hover texts show no more of them."""
    if isinstance(value, dict):
        if value.get("dtype") == "f4":
            array = np.frombuffer(base64.b64decode(value["bdata"]), "<f4")
            bits = array.view("<u4")
            rounded = np.where(np.isfinite(array), (bits + 0x40) & 0xFFFFFF80, bits).astype("<u4")
            return {**value, "bdata": base64.b64encode(rounded.tobytes()).decode("ascii")}
        return {key: coarse(part) for key, part in value.items()}
    return [coarse(part) for part in value] if isinstance(value, list) else value


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")


def _hash(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode('ascii')}"
