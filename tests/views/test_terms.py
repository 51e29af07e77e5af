"""Technical terms have a definition one hover away, the same as in the glossary."""

from __future__ import annotations

import pytest

from sfapp.views.glossary import glossary
from sfapp.views.plot_registry import PLOTS
from sfapp.views.text.terms import ACCOUNTING_TERMS, definitions_in


@pytest.mark.parametrize(
    "term", ["exposed", "frontier", "severity", "imbalance", "routing set", "slack", "lag"]
)
def test_a_term_on_screen_has_the_definition_of_the_glossary(term: str) -> None:
    name = term.replace(" ", "_")
    meaning = next(row["meaning"] for row in glossary() if (row["kind"], row["name"]) == ("term", name))
    assert meaning in definitions_in(f"{term.capitalize()} of the window")
    assert meaning == ACCOUNTING_TERMS[name][1]


def test_a_part_of_a_word_is_no_term() -> None:
    assert definitions_in("flags and lagoons") == ""
    assert definitions_in("Ranks") == ""


def test_titles_of_plots_that_use_a_term_explain_it() -> None:
    assert "Time that lengthens the step" in definitions_in(PLOTS["step_timeline"].title)
