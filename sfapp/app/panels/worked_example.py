"""The card above a worked example: its lesson, and the paper's numbers next to ours."""

from __future__ import annotations

from sfapp.app.theme import box, example_links, label_text, link
from sfapp.model.examples import Example
from sfapp.service.judging import JudgedWindow
from sfapp.views.address import example_page
from sfapp.views.worked_examples import COLUMNS, LESSONS, Row, lesson_rows


def lesson_card(example: Example, judged: JudgedWindow) -> None:
    """Build the lesson, which can be folded away."""
    lesson = LESSONS[example.run_id]
    with box("card lesson", "details") as card:
        card.props["open"] = True
        card.mark("lesson")
        with box("", "summary"):
            label_text(lesson.title, "h2")
            origin = f", from {example.source} of the paper" if example.source else ""
            label_text(f"Worked example{origin}", "span", "muted")
        with box("lesson-columns"):
            with box("story"):
                for paragraph in lesson.story:
                    label_text(paragraph, "p")
                with box("links"):
                    for title, view in lesson.looks:
                        link(title, view.href(example_page(example)))
            with box("scroll"):
                _comparison(lesson_rows(example, judged.measures, judged.diagnosis))
        with box("other-examples"):
            label_text("Other examples", "span", "muted")
            example_links(except_for=example)


def _comparison(rows: list[Row]) -> None:
    """Build the table of plain summaries and the frontier by stage, each next to the paper's number."""
    columns = [(field, title) for field, title in COLUMNS if any(row[field] is not None for row in rows)]
    with box("table", "table"):
        with box("", "thead"), box("", "tr"):
            for field, title in columns:
                label_text(title, "th", "" if field == "stage" else "number").props["scope"] = "col"
        with box("", "tbody"):
            for row in rows:
                with box("", "tr"):
                    label_text(row["stage_text"], "th").props["scope"] = "row"
                    for field, _ in columns[1:]:
                        label_text(row[f"{field}_text"], "td", f"number {field}")
