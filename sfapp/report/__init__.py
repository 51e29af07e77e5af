"""What is handed over: windows with their verdicts, plots and provenance, in one file.

document(windows) -> Report    what is said, plain data
to_html(report)   -> str       one page: interactive, from ``file://``, no request
"""

from sfapp.report.document import Packet, Report, Section, document
from sfapp.report.page import to_html
from sfapp.report.redact import Pseudonyms

__all__ = ["Packet", "Pseudonyms", "Report", "Section", "document", "to_html"]
