"""Write a report as JSON: the verdicts for other tools, and the incident with every edit for re-import."""

from __future__ import annotations

from typing import Any

import msgspec

from sfapp.incidents import IncidentState, document_of
from sfapp.report.parts import Report, ReportComparison, Section


def to_json(report: Report, incident_state: IncidentState, incident_id: str) -> bytes:
    """Return the document, from which ``sfapp.incidents.parse`` reads an identical incident."""
    document = document_of(incident_state, incident_id) | {
        "report": {
            "title": report.title,
            "command": report.command,
            "sfapp": report.version,
            "windows": [_window(section) for section in report.of(Section)],
            "comparisons": [_compared(part) for part in report.of(ReportComparison)],
        }
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _compared(part: ReportComparison) -> dict[str, Any]:
    return {
        "view": part.state.query,
        "summary": ", ".join(filter(None, (part.text.headline, part.text.rest))),
        "columns": part.head,
        "rows": part.rows,
        "packets": part.packets,
    }


def _window(section: Section) -> dict[str, Any]:
    return {
        "run_id": section.run_id,
        "window": section.window,
        "view": section.view.query,
        "differs": section.gates,
        "what_if": section.what_if,
        "reasons": section.verdict.reasons,
        "not_known": section.verdict.unknown,
        "packets": section.packets,
        "diagnosis": section.diagnosis.document(),
        "problems": section.problems,
    }
