"""Names that a redacted text must not hold."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from sfapp.model.view import WindowKey
from sfapp.service.pseudonyms import Pseudonyms
from sfapp.views.address import run_page, window_page
from sfapp.views.text.problems import problem_text
from tests.alerts.test_changes import problem


@pytest.mark.parametrize("run", ["team/exp-7", "acme lr=0.1", "a//b", "größe", "100%"])
def test_a_run_in_an_address_is_replaced_as_everywhere(run: str) -> None:
    names = Pseudonyms.of_names([run], [])

    page = window_page(WindowKey(run, 3))
    assert names.text(f"see http://sfapp.example.org{page}?tab=steps") == (
        "see http://sfapp.example.org/w/run-1/3?tab=steps"
    )
    assert names.text(f"{run_page(run)} and {run}.") == "/runs/run-1 and run-1."


def test_a_run_in_the_query_of_an_address_is_replaced() -> None:
    names = Pseudonyms.of_names(["acme lr=0.1", "train-7"], ["node-0.example.org"])

    assert names.text("?a=acme%20lr%3D0.1%2F0&b=acme+lr%3D0.1/1") == "?a=run-1%2F0&b=run-1/1"
    assert names.text("?next=%2Fw%2Ftrain-7%2F3&text=node-0") == "?next=%2Fw%2Frun-2%2F3&text=host-1"
    assert names.text("train-7 trains on NODE-0, train-77 does not") == (
        "run-2 trains on host-1, train-77 does not"
    )


@pytest.mark.parametrize("run", [f"secret-project-{'x' * 60}", "secret  project"])
def test_a_run_in_a_title_that_the_app_offers_is_replaced(run: str) -> None:
    names = Pseudonyms.of_names([run], [])

    title = problem_text(replace(problem().problem, run_id=run)).where
    assert "secret" in title
    assert names.text(title) == "window 3 of run-1"


def test_a_long_note_takes_no_longer_because_thousands_of_runs_are_named() -> None:
    runs = [f"team/exp-{number} lr=0.1" for number in range(2_000)]
    names = Pseudonyms.of_names(runs, ["node-0.example.org"])
    names.text("")  # The pattern is made once.
    note = "rank 3 is late since the backward pass of step 2026 " * 1_000

    began = time.process_time()
    assert names.text(f"{note}team/exp-7 lr=0.1") == f"{note}{names.runs['team/exp-7 lr=0.1']}"
    assert time.process_time() - began < 0.5
