"""Write a report as PDF on A4, without a browser or network, reproducible to the byte."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence, Set
from typing import Any

import msgspec

from sfapp.assets import assets
from sfapp.errors import ReportError
from sfapp.report.captions import caption
from sfapp.report.fonts import missing_in, script_of, system_folders
from sfapp.report.parts import CollectedPlot, Part, Remark, Report, ReportComparison, Section
from sfapp.report.plots import ReportPlot
from sfapp.report.svg import to_svg
from sfapp.terminal import first_line, without_controls
from sfapp.typesetter import OTHER_SCRIPTS
from sfapp.views import format

_SECONDS = 120.0
"""Time limit of typesetting; 1,000 windows take 20 s."""

_TYPESETTER = (sys.executable, "-P", "-m", "sfapp.typesetter")

_SIZE = re.compile(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"')
_UNBREAKABLE = re.compile(r"\S{48,}")
_EVERY = 24
_OTHER_SCRIPTS = re.compile(r"[\u0530-\u1dff\u2e80-\ud7ff\uf900-\ufdff\ufe30-\uffef\U00010000-\U0010ffff]")
"""Letters beyond Latin, Greek and Cyrillic; symbols and punctuation are in our fonts."""


def to_pdf(report: Report) -> bytes:
    """Return the whole document.

    Raises:
        ReportError: a plot cannot be drawn, or the document cannot be typeset.
    """
    data = _data(report)
    text = msgspec.json.encode(data).decode()
    others = set(_OTHER_SCRIPTS.findall(text))
    missing = missing_in(others, (assets() / "fonts", *system_folders())) if others else frozenset()
    if missing:
        facts = [*data["facts"], ["fonts", _without_font(missing)]]
        text = _as_code_points(msgspec.json.encode({**data, "facts": facts}).decode(), missing)
    return _typeset(text, other_scripts=bool(others))


def _typeset(text: str, other_scripts: bool) -> bytes:
    """Return the document with these data, as the template takes them.

    Raises:
        ReportError: it cannot be typeset, or takes too much time or memory.
    """
    command = [*_TYPESETTER, OTHER_SCRIPTS] if other_scripts else _TYPESETTER
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise ReportError(f"the PDF was not typeset within {_SECONDS:g} s; choose HTML") from None
    except OSError as error:
        raise ReportError(f"the PDF cannot be typeset: {error.strerror}") from error
    if done.returncode:
        reason = first_line(done.stderr.decode(errors="replace"), 200) or f"ended with {done.returncode}"
        raise ReportError(f"the PDF cannot be typeset: {reason}; choose HTML")
    return done.stdout


def _without_font(missing: Set[str]) -> str:
    """Return what is missing, and what to do."""
    scripts = format.listed(sorted({script_of(each) for each in missing}))
    return (
        f"This machine has no font for {scripts}: such characters are shown as code points. Install a font "
        "(for example Noto) and create the report again, or choose HTML."
    )


def _as_code_points(text: str, missing: Set[str]) -> str:
    """Return a text with characters that no font has as ``[U+4E3B U+673A]``."""
    runs = re.compile(f"[{re.escape(''.join(sorted(missing)))}]+")
    return runs.sub(lambda found: f"[{' '.join(f'U+{ord(each):04X}' for each in found[0])}]", text)


def _data(report: Report) -> Mapping[str, Any]:
    """Return the data of the template: texts, and drawings as SVG."""
    windows = report.of(Section)
    anchors = {id(section): f"window-{number}" for number, section in enumerate(windows, 1)}
    return {
        "title": _breakable(report.title) or "sfapp report",
        "footer": format.clip(f"{report.title} · sfapp {report.version}", 100),
        "subtitle": f"{format.counted(len(windows), 'window')} · sfapp {report.version}",
        "version": report.version,
        "facts": [[name, _breakable(value)] for name, value in report.facts],
        "problems": [_breakable(line) for line in report.problem_lines],
        "summary": _breakable(report.summary),
        "contents": [
            {
                "anchor": anchors[id(section)],
                "name": format.clip(f"{section.run_id} / {section.window}"),
                "sentence": section.verdict.sentence,
            }
            for section in windows
        ],
        "parts": [_part(part, anchors.get(id(part), ""), len(windows) == 1) for part in report.parts],
        "command": _breakable(report.command),
    }


def _part(part: Part, anchor: str, alone: bool) -> Mapping[str, Any]:
    if isinstance(part, Section):
        return {"kind": "window", "anchor": anchor, "first": anchor == "window-1", **_window(part, alone)}
    if isinstance(part, CollectedPlot):
        seen = f" · {part.seen}" if part.seen else ""
        heading = _breakable(f"{part.run_id} · window {part.window}{seen}")
        return {"kind": "plot", "heading": heading, "plot": _plot(part.plot)}
    if isinstance(part, ReportComparison):
        return {"kind": "comparison", **_compared(part)}
    if isinstance(part, Remark):
        return {
            "kind": "note",
            "text": _breakable(part.text),
            "pinned": _breakable(part.heading),
            "signed": _breakable(part.signed),
            "overwritten": [_breakable(lost) for lost in part.overwritten],
        }
    return {"kind": "missing", "reason": _breakable(part.reason)}


def _window(section: Section, alone: bool) -> Mapping[str, Any]:
    """Return the data of one window.

    Args:
        alone: whether it is the only window, so that the problems above it are its own.
    """
    verdict = section.verdict
    evidence = " · ".join(f"{line.mark} {line.title}" for line in verdict.evidence)
    rows = [] if alone else [["problem", "", line] for line in section.problem_lines]
    rows += [
        [number.title.lower(), number.value, number.note]
        for number in verdict.numbers
        if number.title.lower() != "evidence"
    ]
    rows.append(["what if", "", section.what_if])
    details = [
        ["evidence", verdict.evidence_summary, evidence],
        ["why", "", " ".join(verdict.why)],
        ["limitations", "", " ".join(verdict.unknown)],
    ]
    return {
        "heading": _breakable(f"{section.run_id} · window {section.window} · {section.size}"),
        "tone": verdict.tone,
        "kicker": verdict.kicker,
        "headline": verdict.headline,
        "place": _breakable(verdict.place),
        "explanation": _breakable(" ".join((*verdict.explanation, *verdict.reasons))),
        "action": _breakable(verdict.action),
        "chips": [chip.text for chip in verdict.chips],
        "rows": _rows(rows),
        "details": _rows(details),
        "plots": [_plot(plot) for plot in section.plots],
        "judged": [
            ["thresholds", ", ".join(section.gates) if section.gates else "all at their defaults"],
            ["frontier", section.frontier],
            ["baseline", section.baseline],
            ["compared with", _breakable(section.reference)],
        ],
        "packets": [[_breakable(packet.name), packet.sha256] for packet in section.packets],
    }


def _rows(rows: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Return the rows of a table that have content."""
    return [[name, lead, _breakable(rest)] for name, lead, rest in rows if lead or rest]


def _compared(part: ReportComparison) -> Mapping[str, Any]:
    text = part.text
    rows = [[number.title, number.value, number.note] for number in text.numbers]
    rows += [["caveat", "", caveat] for caveat in text.caveats]
    return {
        "heading": _breakable(part.title),
        "tone": text.tone,
        "kicker": _breakable(text.kicker),
        "headline": _breakable(text.headline),
        "rest": text.rest,
        "explanation": _breakable(" ".join(text.explanation)),
        "labels": [label.text for label in text.labels],
        "rows": [[name, lead, _breakable(rest)] for name, lead, rest in rows],
        "head": list(part.head),
        "table": [[_breakable(cell) for cell in row] for row in part.rows],
        "plots": [_plot(plot) for plot in part.plots],
        "packets": [[_breakable(packet.name), packet.sha256] for packet in part.packets],
    }


def _plot(plot: ReportPlot) -> Mapping[str, Any]:
    words = caption(plot)
    drawing = to_svg(plot.light)
    return {
        "title": words.title,
        "subtitle": _breakable(words.subtitle),
        "alt": words.alt,
        "caption": _breakable(words.below),
        "svg": drawing,
        "ratio": _ratio(drawing),
    }


def _ratio(drawing: str) -> float:
    """Return the height of a drawing relative to its width."""
    found = _SIZE.search(drawing)
    return 1.0 if found is None else float(found[2]) / max(1.0, float(found[1]))


def _breakable(words: str) -> str:
    """Allow line breaks within long names, and replace characters that no font can show."""
    return _UNBREAKABLE.sub(
        lambda found: "\u200b".join(
            found[0][start : start + _EVERY] for start in range(0, len(found[0]), _EVERY)
        ),
        without_controls(words),
    )
