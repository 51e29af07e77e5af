"""The pages of docs/ that follow from the code are up to date."""

from __future__ import annotations

import pytest

from assets.reference_pages import DOCS, openapi, pages


@pytest.mark.parametrize("name", ["commands.md", "gates.md", "http.md", "labels.md"])
def test_a_page_that_follows_from_the_code_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == pages()[name], "run: python assets/reference_pages.py"


def test_every_query_parameter_of_the_app_has_a_meaning() -> None:
    parameters = [
        (path, each)
        for path, methods in openapi()["paths"].items()
        for each in methods["get"].get("parameters", [])
        if each["in"] == "query"
    ]
    assert len(parameters) > 100
    assert [(path, each["name"]) for path, each in parameters if not each.get("description")] == []
