"""The pages of docs/ that follow from the code are up to date."""

from __future__ import annotations

import pytest

from assets.reference_pages import DOCS, pages


@pytest.mark.parametrize("name", ["commands.md", "gates.md", "labels.md"])
def test_a_page_that_follows_from_the_code_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == pages()[name], "run: python assets/reference_pages.py"
