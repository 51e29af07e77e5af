"""``/glossary``: every label, threshold, reason and kind of cause, from the tables of the code."""

from __future__ import annotations

from fastapi import Request

from sfapp.app.notices import ignored_options, notices
from sfapp.app.routes import Handler
from sfapp.app.theme import Crumb, box, example_links, frame, label_text, link
from sfapp.service.workspace import Workspace
from sfapp.views.glossary import Row, glossary

SECTIONS = {
    "stage": "Stages",
    "label": "Labels",
    "gate": "Thresholds",
    "reason": "Reasons",
    "culprit": "Recurrence",
    "evidence": "Checks",
    "term": "Terms",
    "cause": "Kinds of causes",
    "nature": "Kinds of work",
    "collective": "Time of a collective",
    "agreement": "Why verdict and operators can differ",
}


def build(workspace: Workspace) -> tuple[Handler, ...]:
    """Return the page's handler."""

    async def glossary_page(request: Request) -> None:
        rows = glossary()
        crumbs = (Crumb("Problems", "/"), Crumb("Glossary"))
        with frame(workspace, request, "glossary", crumbs), box("stack"):
            notices(ignored_options(request))
            with box("overview-head"):
                label_text("Glossary", "h1")
            with box("toolbar"):
                label_text("The meaning of every term in a verdict.", "p", "muted")
                box("grow")
                link(".json", "/glossary.json", "badge")
            with box("card", "section"):
                label_text("Worked examples", "h2")
                label_text("Small windows from the paper, with its numbers next to ours.", "p", "subtitle")
                example_links()
            for kind, title in SECTIONS.items():
                with box("card", "section"):
                    label_text(title, "h2")
                    for row in rows:
                        if row["kind"] == kind:
                            _term(row)

    return (glossary_page,)


def _term(row: Row) -> None:
    """Show one term under its own anchor, ``KIND-NAME``: a reason and a gate may share a name."""
    anchor = f"{row['kind']}-{row['name']}"
    with box("term") as term:
        term.props["id"] = anchor
        words = f"{row['words']} ({row['symbol']})" if row["symbol"] else row["words"]
        heading = link(words, f"#{anchor}").mark(anchor)
        heading.props["title"] = row["name"]
        default = f" Default {row['default']}." if row["default"] else ""
        label_text(f"{row['meaning']}{default}", "p")
