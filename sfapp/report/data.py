"""A report as JSON: the verdicts for other tools, and the incident with every edit, to be imported again."""

from __future__ import annotations

from typing import Any

import msgspec

from sfapp.incidents import Book, document_of
from sfapp.report.document import Report, Section


def to_json(report: Report, book: Book, incident_id: str) -> bytes:
    """The document; ``sfapp.incidents.parse`` reads the incident back from it, identical."""
    document = document_of(book, incident_id) | {
        "report": {
            "title": report.title,
            "command": report.command,
            "sfapp": report.version,
            "windows": [_window(section) for section in report.of(Section)],
        }
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _window(section: Section) -> dict[str, Any]:
    return {
        "run_id": section.run_id,
        "window": section.window,
        "view": section.view.query,
        "differs": section.gates,
        "not_known": section.verdict.unknown,
        "packets": section.packets,
        "diagnosis": section.diagnosis,
    }
