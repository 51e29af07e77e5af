"""One report in any format, by the ending of a file's name."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath

from sfapp.errors import ReportError
from sfapp.files import atomic_writer
from sfapp.incidents import IncidentState
from sfapp.report.document import Report

Files = Mapping[str, bytes]
"""What a report is written as, by path relative to its folder; the report itself first."""

Format = Callable[[str, Report, IncidentState, str], Files]


# Each format is imported when a report is written in it: the app starts without their libraries.


def _html(name: str, report: Report, book: IncidentState, incident_id: str) -> Files:
    from sfapp.report.html import to_html

    return {name: to_html(report).encode()}


def _pdf(name: str, report: Report, book: IncidentState, incident_id: str) -> Files:
    from sfapp.report.pdf import to_pdf

    return {name: to_pdf(report)}


def _notebook(name: str, report: Report, book: IncidentState, incident_id: str) -> Files:
    from sfapp.report.notebook import to_notebook

    return {name: to_notebook(report).encode()}


def _json(name: str, report: Report, book: IncidentState, incident_id: str) -> Files:
    from sfapp.report.json import to_json

    return {name: to_json(report, book, incident_id)}


def _markdown(name: str, report: Report, book: IncidentState, incident_id: str) -> Files:
    """Return the text, and its drawings in a folder named after it."""
    from sfapp.report.markdown import to_markdown

    folder = f"{PurePath(name).stem}_files"
    text, drawings = to_markdown(report, folder)
    return {name: text.encode()} | {f"{folder}/{drawing}": svg.encode() for drawing, svg in drawings.items()}


FORMATS: Mapping[str, Format] = {
    ".html": _html,
    ".md": _markdown,
    ".pdf": _pdf,
    ".ipynb": _notebook,
    ".json": _json,
}


def format_of(name: str) -> Format:
    """The format that a file's name asks for.

    Raises:
        ReportError: there is none with its ending.
    """
    ending = PurePath(name).suffix.lower()
    if ending not in FORMATS:
        raise ReportError(f"{name} should end in {', '.join(FORMATS)}")
    return FORMATS[ending]


def render(name: str, report: Report, book: IncidentState, incident_id: str) -> Files:
    """The files of a report.

    Args:
        name: of the report's file, without folder.
        book, incident_id: what it reports on, for the formats that can be imported again.

    Raises:
        ReportError: the name's ending is of no format.
    """
    return format_of(name)(name, report, book, incident_id)


def packed(files: Files) -> tuple[str, bytes]:
    """The name and content of one file that holds all: itself where it is alone, else a ZIP."""
    (name, content), *others = files.items()
    if not others:
        return name, content
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, inside in files.items():
            archive.writestr(zipfile.ZipInfo(each, (1980, 1, 1, 0, 0, 0)), inside, zipfile.ZIP_DEFLATED)
    return f"{PurePath(name).stem}.zip", held.getvalue()


def write(path: Path, files: Files) -> int:
    """Write a report where it is asked for: each file whole or not at all; its size in bytes.

    Raises:
        ReportError: it cannot be written there.
    """
    try:
        for name, content in reversed(list(files.items())):  # drawings before the text that shows them
            target = path.parent / name
            target.parent.mkdir(exist_ok=True)
            with atomic_writer(target, sync=False) as file:
                file.write(content)
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror}") from error
    return sum(map(len, files.values()))
