"""What is handed over: an incident with verdicts, plots, notes and provenance, in one file.

make(order, look, book)   -> files     the whole way; the caller reads and writes
document(incident, look)  -> Report    what is said, plain data
render("incident.html", …) -> files    in the format that the name asks for
"""

from sfapp.report.build import Order, make
from sfapp.report.command import TITLE, command
from sfapp.report.document import Evidence, Missing, Packet, Remark, Report, Section, Shown, document
from sfapp.report.formats import FORMATS, Files, format_of, packed, render, write
from sfapp.report.redact import Pseudonyms

__all__ = [
    "FORMATS",
    "TITLE",
    "Evidence",
    "Files",
    "Missing",
    "Order",
    "Packet",
    "Pseudonyms",
    "Remark",
    "Report",
    "Section",
    "Shown",
    "command",
    "document",
    "format_of",
    "make",
    "packed",
    "render",
    "write",
]
