"""What is handed over: an incident with verdicts, plots, notes and provenance, in one file.

document(incident, look)  -> Report    what is said, plain data
render("incident.html", …) -> files     in the format that the name asks for; the caller writes them
"""

from sfapp.report.command import TITLE, command
from sfapp.report.document import Evidence, Missing, Packet, Remark, Report, Section, Shown, document
from sfapp.report.formats import FORMATS, format_of, render, write
from sfapp.report.redact import Pseudonyms

__all__ = [
    "FORMATS",
    "TITLE",
    "Evidence",
    "Missing",
    "Packet",
    "Pseudonyms",
    "Remark",
    "Report",
    "Section",
    "Shown",
    "command",
    "document",
    "format_of",
    "render",
    "write",
]
