"""Write a report in the format selected by the suffix of a file name.

To add a format, write its module, one function here and one entry in ``REPORT_FORMATS``. A format must keep
three promises, which ``tests/report/test_report_formats.py`` checks for every entry:

- The same report has the same bytes: no time of writing, no random ids, no order that varies.
- The title, the run ids and the host names of the report are in the files.
- It takes run and host names from the report and the incidents alone, where a redacted report holds
  pseudonyms. It never reads packets, paths or the environment.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from sfapp.errors import ReportError
from sfapp.files import output_writer, write_atomic
from sfapp.incidents import IncidentState
from sfapp.report.parts import Report

Files = Mapping[str, bytes]
"""Files of a report by path relative to its folder, the report itself first."""


@dataclass(frozen=True, slots=True)
class ReportFormat:
    """One format of reports.

    Attributes:
        purpose: words in which the app offers it.
        files: makes the files from the name of the report's file, the report, the state of notes and
            incidents, and the incident's id.
    """

    purpose: str
    files: Callable[[str, Report, IncidentState, str], Files]


# Each format is imported when a report is written in it: the app starts without their libraries.


def _html(name: str, report: Report, incident_state: IncidentState, incident_id: str) -> Files:
    from sfapp.report.html import to_html

    return {name: to_html(report).encode()}


def _pdf(name: str, report: Report, incident_state: IncidentState, incident_id: str) -> Files:
    from sfapp.report.pdf import to_pdf

    return {name: to_pdf(report)}


def _notebook(name: str, report: Report, incident_state: IncidentState, incident_id: str) -> Files:
    from sfapp.report.notebook import to_notebook

    return {name: to_notebook(report).encode()}


def _json(name: str, report: Report, incident_state: IncidentState, incident_id: str) -> Files:
    from sfapp.report.json import to_json

    return {name: to_json(report, incident_state, incident_id)}


def _markdown(name: str, report: Report, incident_state: IncidentState, incident_id: str) -> Files:
    """Return the text, and its drawings in a folder named after it."""
    from sfapp.report.markdown import to_markdown

    folder = f"{PurePath(name).stem}_files"
    text, drawings = to_markdown(report, folder)
    return {name: text.encode()} | {f"{folder}/{drawing}": svg.encode() for drawing, svg in drawings.items()}


REPORT_FORMATS: Mapping[str, ReportFormat] = {
    ".html": ReportFormat("HTML: single self-contained file with interactive plots", _html),
    ".md": ReportFormat("Markdown: a ZIP of text and drawings, for an issue or a wiki", _markdown),
    ".pdf": ReportFormat("PDF: for printing and filing", _pdf),
    ".ipynb": ReportFormat("Notebook: recomputes everything from the packets", _notebook),
    ".json": ReportFormat("JSON: for import and for other tools", _json),
}


def format_of(name: str) -> ReportFormat:
    """Return the format for a file name.

    Raises:
        ReportError: no format has this suffix.
    """
    ending = PurePath(name).suffix.lower()
    if ending not in REPORT_FORMATS:
        raise ReportError(f"{name} should end in {', '.join(REPORT_FORMATS)}")
    return REPORT_FORMATS[ending]


def render(name: str, report: Report, incident_state: IncidentState, incident_id: str) -> Files:
    """Return the files of a report.

    Args:
        name: name of the report's file, without folder.
        incident_state, incident_id: the incident, for formats that can be imported again.

    Raises:
        ReportError: no format has this suffix.
    """
    return format_of(name).files(name, report, incident_state, incident_id)


def packed(files: Files) -> tuple[str, bytes]:
    """Return name and content of a single file: the only file, or else a ZIP of all."""
    (name, content), *others = files.items()
    if not others:
        return name, content
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, inside in files.items():
            archive.writestr(zipfile.ZipInfo(each, (1980, 1, 1, 0, 0, 0)), inside, zipfile.ZIP_DEFLATED)
    return f"{PurePath(name).stem}.zip", held.getvalue()


def write(path: Path, files: Files) -> int:
    """Write the files of a report and return their total size in bytes. Files of a former report stay as they
    are until all of this one are on the disk.

    Raises:
        ReportError: a file cannot be written.
    """
    (name, content), *others = files.items()
    new: dict[Path, Path] = {}
    try:
        for other, inside in others:
            target = path.parent / other
            target.parent.mkdir(exist_ok=True)
            new[target] = target.with_name(f".{target.name}.new")
            write_atomic(new[target], inside, sync=False)
        with output_writer(path.parent / name, sync=False) as file:
            file.write(content)
            file.flush()
            for target, written in new.items():  # drawings before the text that refers to them
                written.replace(target)
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        for written in new.values():
            with suppress(OSError):
                written.unlink(missing_ok=True)
    return sum(map(len, files.values()))
