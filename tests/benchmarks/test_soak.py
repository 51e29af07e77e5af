"""The arithmetic behind docs/evidence/soak.md."""

from __future__ import annotations

import os
import time

import numpy as np
import psutil
import pytest

from benchmarks.app_soak import section as app_section
from benchmarks.many_ranks import RanksPlan
from benchmarks.many_ranks_report import growth, minutes, spread
from benchmarks.namespaces import service_of
from benchmarks.soak import PARTS, page
from benchmarks.soak_report import step_ends_ns
from sfapp.cli.supervisor import Service
from tests.builders import window_of

MB = 2**20


def measured(rss: list[float], busy: float = 0.25) -> list[tuple[float, float, int]]:
    """A measurement every five seconds, of an aggregator that takes this share of a core."""
    return [(1000.0 + 5 * place, busy * 5 * place, int(size)) for place, size in enumerate(rss)]


def test_a_minute_is_the_share_of_a_core_and_the_memory_at_its_end() -> None:
    found = minutes(measured([100 * MB] * 25))
    assert len(found) == 2
    assert [minute.core_share for minute in found] == pytest.approx([0.25, 0.25])
    assert {minute.rss_bytes for minute in found} == {100 * MB}


def test_memory_that_fills_up_at_first_is_flat() -> None:
    slope, part = growth(measured([100 * MB] * 100 + [300 * MB] * 200))
    assert slope == pytest.approx(0, abs=1)
    assert part == pytest.approx(0, abs=1e-6)


def test_memory_that_leaks_grows_by_what_it_leaks_a_minute() -> None:
    slope, part = growth(measured([300 * MB + MB * place / 12 for place in range(361)]))
    assert slope == pytest.approx(MB, rel=0.01)
    assert part == pytest.approx(13.5 / 323.25, rel=0.01)  # the last 13.5 of 30 minutes


def test_lags_are_summarised_by_quantiles() -> None:
    assert spread(np.arange(101) / 100) == "101 | 0.50 | 0.95 | 1.00"
    assert spread(np.zeros(0)) == "0 | | |"


def test_the_services_that_faults_are_injected_into_are_found() -> None:
    with Service("relay", ["tcp://127.0.0.1:1", "--listen", "tcp://127.0.0.1:0"], os.environ, restart=False):
        deadline = time.monotonic() + 60
        while "relay" not in (found := [service_of(each.cmdline()) for each in psutil.Process().children()]):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)


def test_a_part_that_was_run_alone_leaves_the_others_sections_as_they_were() -> None:
    breaks, outage, crowd, *_ = (title for title, _ in PARTS.values())
    before = page("", {breaks: "Nothing lost.", crowd: "64 ranks."})
    after = page(before, {outage: "Nothing lost either.", crowd: "1,024 ranks."})
    sections = after.split("\n## ")[1:]
    assert [section.split("\n")[0] for section in sections] == [breaks, outage, crowd]
    assert [section.split("\n")[2] for section in sections] == [
        "Nothing lost.",
        "Nothing lost either.",
        "1,024 ranks.",
    ]
    assert page(after, {}) == after


def test_a_slow_server_fails_its_part_and_so_does_one_that_needs_more_and_more_memory() -> None:
    flat, leaking = ([rss * MB for rss in column] for column in ([300.0] * 361, np.linspace(300, 400, 361)))
    assert app_section(30, [0.1] * 100, measured(flat), 10**6)[1]
    assert not app_section(30, [0.1] * 100, measured(leaking), 10**6)[1]
    assert not app_section(30, [0.1] * 90 + [0.4] * 10, measured(flat), 10**6)[1]
    assert not app_section(30, [0.1] * 100, measured(flat), 0)[1]


def test_a_soak_is_as_many_windows_as_fit_into_its_minutes() -> None:
    assert RanksPlan().of_minutes(30).windows == 90
    assert RanksPlan().of_minutes(0.1).windows == 2


def test_steps_end_where_the_window_ends_and_in_between_at_the_first_ranks_times() -> None:
    wall_NR = [[3, 9], [1, 9], [3, 9]]
    times = {"started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:08Z"}
    ends_N = step_ends_ns(window_of([wall_NR], **times)) / 1e9
    assert (ends_N - ends_N[0]).tolist() == [0, 2, 8]
