"""Reports: an incident with verdicts, plots, notes and provenance, in one file.

build_report(request, evidence, incident_state) -> Report, files   everything; the caller reads and writes
document(incident, evidence)                    -> Report          its content as plain data
render("incident.html", …)                      -> files           in the format of that name
"""

from sfapp.report.build import ReportRequest, build_report
from sfapp.report.command import TITLE, command
from sfapp.report.document import document
from sfapp.report.formats import REPORT_FORMATS, Files, format_of, packed, render, write
from sfapp.report.parts import CollectedPlot, Missing, Remark, Report, Section

__all__ = [
    "REPORT_FORMATS",
    "TITLE",
    "CollectedPlot",
    "Files",
    "Missing",
    "Remark",
    "Report",
    "ReportRequest",
    "Section",
    "build_report",
    "command",
    "document",
    "format_of",
    "packed",
    "render",
    "write",
]
