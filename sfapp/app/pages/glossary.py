"""``/glossary``: labels, gates, reasons, kinds of culprit, evidence and cause, from the code's own tables."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from sfapp.app.theme import Crumb, box, example_links, frame, label_text, link
from sfapp.app.workspace import Workspace
from sfapp.views.glossary import Row, glossary

SECTIONS = {
    "label": "Labels",
    "gate": "Gates",
    "reason": "Reasons",
    "culprit": "Culprits",
    "evidence": "Evidence",
    "term": "Stragglers",
    "cause": "Kinds of causes",
    "nature": "Natures of causes",
    "collective": "What a collective's time went into",
    "agreement": "Why verdict and operators may differ",
}


def build(workspace: Workspace) -> None:
    """Register the page."""

    @ui.page("/glossary")
    def glossary_page(request: Request) -> None:
        rows = glossary()
        with frame(workspace, request, "glossary", (Crumb("Windows", "/"), Crumb("Glossary"))), box("stack"):
            with box("toolbar"):
                label_text("What every word of a verdict means.", "p", "muted")
                box("grow")
                link(".json", "/glossary.json", "badge")
            with box("card", "section"):
                label_text("Examples", "h2")
                label_text("Small enough for a pencil, with the paper's own numbers beside.", "p", "subtitle")
                example_links()
            for kind, title in SECTIONS.items():
                with box("card", "section"):
                    label_text(title, "h2")
                    for row in rows:
                        if row["kind"] == kind:
                            _term(row)


def _term(row: Row) -> None:
    """One term under its own anchor, ``KIND-NAME``: a reason and a gate may share a name."""
    anchor = f"{row['kind']}-{row['name']}"
    with box("term") as term:
        term.props["id"] = anchor
        named = f"{row['name']} ({row['symbol']})" if row["symbol"] else row["name"]
        link(named, f"#{anchor}").mark(anchor)
        default = f" Default {row['default']}." if row["default"] else ""
        label_text(f"{row['meaning']}{default}", "p")
