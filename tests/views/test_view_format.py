"""Numbers as text."""

from __future__ import annotations

import math

import pytest

from sfapp.views import format


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (149_900_000, "149.9 ms"),
        (3_420_000, "3.42 ms"),
        (9_999_000, "10.0 ms"),
        (999_940_000, "999.9 ms"),
        (999_960_000, "1.00 s"),
        (8_200_000_000, "8.20 s"),
        (13_240_000_000, "13.2 s"),
        (1_234_000_000_000, "1,234 s"),
        (640_000, "640 µs"),
        (12, "12 ns"),
        (0, "0 ms"),
        (-1_500_000, "−1.50 ms"),
        (None, "n/a"),
        (math.nan, "n/a"),
    ],
)
def test_durations_keep_sensible_digits(ns: float | None, text: str) -> None:
    assert format.duration(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (59_300_000, "+59 ms"),
        (1_510_000, "+1.5 ms"),
        (-1_510_000, "−1.5 ms"),
        (200_000, "+0.2 ms"),
        (7_000, "+7 µs"),
        (100, "±0 ms"),
        (2_340_000_000, "+2.3 s"),
        (None, "n/a"),
    ],
)
def test_changes_carry_their_sign_and_two_digits(ns: float | None, text: str) -> None:
    assert format.change(ns) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.412, "41 %"),
        (1, "100 %"),
        (0.001, "<1 %"),
        (0, "0 %"),
        (-0.2, "−20 %"),
        (12.3, "1,230 %"),
        (None, "n/a"),
    ],
)
def test_percentages_never_round_something_to_nothing(fraction: float | None, text: str) -> None:
    assert format.percent(fraction) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.0497, "<5 %"), (0.05, "5 %"), (0.0502, "5 %"), (0.044, "4 %"), (0.3, "30 %"), (None, "n/a")],
)
def test_a_severity_below_the_gate_never_reads_as_if_it_had_reached_it(
    fraction: float | None, text: str
) -> None:
    assert format.severity(fraction) == text


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.58, "+58 %"), (-0.03, "−3 %"), (0.001, "±0 %"), (None, "n/a")]
)
def test_relative_changes_carry_their_sign(fraction: float | None, text: str) -> None:
    assert format.percent_change(fraction) == text


@pytest.mark.parametrize(
    ("which", "text"),
    [
        ("all", "every step"),
        ("every 10", "every 10th step"),
        ("every 2", "every other step"),
        ("every 3", "every 3rd step"),
        ("every ²", "every ²"),  # text of a stored diagnosis that is no number
        ((403,), "step 403"),
        ((403, 417), "steps 403 and 417"),
        ((1, 2, 3, 4, 5, 6), "steps 1, 2, 3, 4 and 2 more"),
        ((), "no step"),
    ],
)
def test_steps_are_written_as_ranges(which: str | tuple[int, ...], text: str) -> None:
    assert format.steps(which) == text


@pytest.mark.parametrize(
    ("stage", "short"),
    [
        ("step.between_cpu_wall", "between steps"),
        ("data.next_wait", "data"),
        ("model.fwd_loss_cpu_wall", "forward"),
        ("model.backward_cpu_wall[3]", "backward[3]"),
        ("step.other_cpu_wall", "other"),
        ("data.decode", "data.decode"),
        ("model.backward.bucket_wait_cpu_wall", "backward.bucket_wait"),
        ("a.b.c.d", "c.d"),
        ("plain", "plain"),
        ("...", "..."),
    ],
)
def test_stages_have_short_names(stage: str, short: str) -> None:
    assert format.short_stage(stage) == short


def test_time_between_steps_is_in_no_stage_of_a_step() -> None:
    assert format.in_stage("step.between_cpu_wall") == "between steps"
    assert format.in_stage("model.backward_cpu_wall[1]", "inside") == "inside backward[1]"


def test_stages_that_would_look_equal_keep_their_full_name() -> None:
    short = format.short_stages(["one.b.c", "two.b.c", "data.next_wait"])
    assert short == {"one.b.c": "one.b.c", "two.b.c": "two.b.c", "data.next_wait": "data"}


def test_long_names_are_cut_to_one_line() -> None:
    assert format.clip("a" * 300) == "a" * 39 + "…"
    assert format.clip("two\nlines\tof text") == "two lines of text"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "just now"),
        (4, "4 s ago"),
        (200, "3 min ago"),
        (7300, "2 h ago"),
        (5e5, "5 d ago"),
        (None, "never"),
    ],
)
def test_ages_have_one_unit(seconds: float | None, text: str) -> None:
    assert format.age(seconds) == text


def test_the_rest() -> None:
    assert format.count(16_384) == "16,384"
    assert format.counted(1, "rank") == "1 rank"
    assert format.counted(8, "rank") == "8 ranks"
    assert [format.ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st",
    ]  # fmt: skip
    assert format.ranges([0, 1, 2, 3, 7]) == "0–3 and 7"
    assert format.size(29_100) == "29 kB"
    assert format.size(1_240_000) == "1.2 MB"
    assert format.size(None) == "n/a"
    assert format.slope(0.92, 0.03) == "0.92 ± 0.03"
    assert format.slope(None, None) == "n/a"
    assert format.share(-0.001) == "0.00"
    assert format.factor(1.4) == "×1.40"


@pytest.mark.parametrize(
    ("largest", "unit"), [(2e10, "s"), (1.5e8, "ms"), (9.9e9, "ms"), (5e4, "µs"), (0, "ms")]
)
def test_an_axis_has_one_unit(largest: float, unit: str) -> None:
    assert format.unit_for(largest).name == unit


def test_an_interval_contains_its_value_also_above_the_whole() -> None:
    # A pipeline stage with one and a half times more own time than the mean stage.
    assert format.percent_interval(1.5, 1.4, 1.6) == "150.0 % (140.0–160.0 %)"
