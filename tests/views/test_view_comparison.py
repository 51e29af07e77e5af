"""A comparison as people read it: sentences, tables whose columns add up, plots."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.accounting import CAVEATS, Comparison, compare, diagnose
from sfapp.model import Diagnosis
from sfapp.views import comparison_tables, format
from sfapp.views import text as words
from sfapp.views.figures.compare import comparison_spread, comparison_waterfall
from sfapp.views.text.change_breakdown import where_it_lies
from sfapp.views.text.compare import CAVEAT_WORDS
from tests.builders import CALLBACKS, ddp_job, window_of
from tests.views import simulated_windows as jobs

MS = 10**6


def judged(name: str, number: int) -> Diagnosis:
    return replace(jobs.against_healthy(jobs.ALL[name]())[1], window=number)


@pytest.fixture(scope="module")
def aba() -> Comparison:
    """Healthy, a slow callback on rank 3, healthy."""
    return compare(judged("healthy", 1), judged("slow_callback", 2), judged("healthy", 3))


def hundredths(text: str) -> int:
    """A printed time in the last digit's unit."""
    return round(float(text.replace("−", "-").strip("±").replace(",", "")) * 100)


@given(st.lists(st.fractions(-(10**10), 10**10), min_size=1, max_size=12))
def test_times_add_up_as_printed_and_none_is_off_by_a_whole_digit(parts: list[Fraction]) -> None:
    named = {str(place): part for place, part in enumerate(parts)}
    unit = format.per_step_unit(10**10)
    texts, total = format.adding_up(named, unit)
    assert sum(hundredths(text) for text in texts.values()) == hundredths(total)
    for name, part in named.items():
        assert abs(hundredths(texts[name]) - part / MS * 100) < 1


def test_own_time_and_waiting_have_columns_where_both_sides_measured_waits() -> None:
    sides = [
        replace(jobs.look(jobs.slow_inside_backward(ms))[1], window=number)
        for number, ms in enumerate((0, 60))
    ]
    found = compare(*sides)
    rows = {row["name"]: row for row in comparison_tables.stage_rows(found)}
    fields = [column.field for column in comparison_tables.stage_columns(found)]

    assert {"own_ns", "waiting_ns"} <= set(fields)
    backward = rows["backward"]
    assert backward["own_ns"] == pytest.approx(60e6, rel=0.05)
    assert abs(backward["waiting_ns"]) < 1e6
    assert backward["own_ns"] + backward["waiting_ns"] == pytest.approx(backward["delta_ns"])
    assert rows["data"]["own_ns_text"] == rows["step time"]["waiting_ns_text"] == ""


def test_signs_give_the_direction() -> None:
    parts = {"a": Fraction(1_234_567), "b": Fraction(-2_000_000), "c": Fraction(0)}
    unit = format.per_step_unit(2 * MS)
    assert format.adding_up(parts, unit) == ({"a": "+1.23", "b": "−2.00", "c": "±0.00"}, "−0.77")
    assert format.adding_up(parts, unit, signed=False)[0]["a"] == "1.23"
    assert format.per_step_unit(99_000).name == "µs"


def test_the_card_gives_the_size_the_stage_the_rank_and_the_recovery(aba: Comparison) -> None:
    shown = words.comparison(aba)
    assert shown.kicker == "run gpt-small-ddp: A · window 1 → B · window 2 → C · window 3"
    assert shown.headline.startswith("B is 58 ms per step slower than A, all of it in callbacks")
    assert shown.rest == "C recovers 100 % of it"
    assert (
        "In B rank 3 (node-0) is slowest in callbacks in 40 of 40 steps; in A no rank is."
        in shown.explanation
    )
    assert any("Per-step shares point to backward" in sentence for sentence in shown.explanation)
    assert [number.title for number in shown.numbers] == ["step of A", "step of B", "step of C", "recovery"]
    assert shown.tone == "alarm"


def test_a_faster_b_is_good_news_in_the_same_words(aba: Comparison) -> None:
    shown = words.comparison(compare(judged("slow_callback", 2), judged("healthy", 1)))
    assert shown.headline == "B is 58 ms per step faster than A, all of it in callbacks"
    assert "In B no rank is slowest in callbacks; in A it was rank 3 (node-0)." in shown.explanation
    assert shown.tone == "good"


def test_what_did_not_change_is_not_talked_up() -> None:
    healthy = judged("healthy", 1)
    shown = words.comparison(compare(healthy, healthy, judged("slow_callback", 2)))
    assert shown.headline == "B is as fast as A (±0 ms per step)"
    assert shown.rest == "no slowdown for C to recover"
    assert shown.caveats == (CAVEAT_WORDS["same_windows"],)
    assert shown.tone == "quiet"


def test_a_change_inside_a_runs_own_spread_is_reported() -> None:
    run = [judged("healthy", 1), judged("slow_callback", 2)]
    shown = words.comparison(compare(run, judged("healthy", 3)))
    assert any("A's windows range from" in sentence for sentence in shown.explanation)
    assert shown.kicker.startswith("run gpt-small-ddp: A · all windows → B · window 3")


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ({"data.next_wait": 50.0, "optim.step_cpu_wall": 0.5}, ", all of it in data"),
        (
            {"data.next_wait": 60.0, "optim.step_cpu_wall": -10.0},
            ": data +60 ms, other stages slightly faster",
        ),
        ({"data.next_wait": 14.0, "optim.step_cpu_wall": -9.0}, ": data +14 ms, optimizer −9.0 ms"),
        ({"data.next_wait": -14.0, "optim.step_cpu_wall": 9.0}, ": data −14 ms, optimizer +9.0 ms"),
        ({"data.next_wait": 30.0, "optim.step_cpu_wall": 20.0}, ": data +30 ms and optimizer +20 ms"),
    ],
)
def test_a_change_is_placed_in_the_stages_that_make_it_up(deltas: dict[str, float], expected: str) -> None:
    parts = {stage: delta * MS for stage, delta in deltas.items()}
    assert where_it_lies(sum(parts.values()), parts) == expected


def test_added_and_removed_labels_are_listed_with_their_meaning() -> None:
    slow_data = replace(jobs.against_healthy(jobs.data_tail())[1], window=2)
    shown = words.comparison(compare(judged("healthy", 1), slow_data))
    assert "+ waits for other ranks" in [change.text for change in shown.labels]
    assert all(
        change.meaning.startswith((f"{change.label}: gained", f"{change.label}: lost"))
        for change in shown.labels
    )


def test_every_caveat_has_its_words() -> None:
    assert set(CAVEAT_WORDS) == set(CAVEATS)


@pytest.mark.parametrize("kind", sorted(jobs.ALL))
def test_any_window_can_be_put_into_words_and_tables(kind: str) -> None:
    one, other = judged(kind, 1), judged(kind, 2)
    found = compare(one, [one, other], other)
    assert words.comparison(found).headline.startswith("B is as fast as A")
    for columns, rows in (
        (comparison_tables.stage_columns(found), comparison_tables.stage_rows(found)),
        (comparison_tables.side_columns(found), comparison_tables.side_rows(found)),
    ):
        for row in rows:
            assert {column.shown for column in columns} <= set(row)


def test_every_column_of_times_adds_up_as_printed(aba: Comparison) -> None:
    *stages, total = comparison_tables.stage_rows(aba)
    for field in ("A_ns", "B_ns", "C_ns", "delta_ns", "back_ns", "aligned_ns"):
        added = sum(hundredths(row[f"{field}_text"]) for row in stages)
        assert added == hundredths(total[f"{field}_text"]), field
        assert sum(row[field] for row in stages) == pytest.approx(total[field])


def test_the_sides_show_the_changes_from_a_to_b(aba: Comparison) -> None:
    rows = {row["what"]: row for row in comparison_tables.side_rows(aba)}
    assert rows["slowest in callbacks"]["B"] == "rank 3 (node-0), 40 of 40 steps"
    assert rows["slowest in callbacks"]["change"] == "+ rank 3"
    assert rows["severity"]["A"] == format.percent(aba.a.severity)
    assert "windows" not in rows


def test_the_waterfall_arrives_at_b(aba: Comparison) -> None:
    drawn = comparison_waterfall(aba)
    names = [name.replace("<b>", "").replace("</b>", "") for name in drawn["layout"]["xaxis"]["ticktext"]]
    assert names == ["A", "callbacks", "5 others", "B", "callbacks", "5 others", "C"]
    bars = [(trace["base"][0], trace["y"][0]) for trace in drawn["data"]]
    added = bars[1][0] + bars[1][1]  # A's top and the callbacks on it
    assert bars[1][0] == pytest.approx(bars[0][1])
    assert abs(added - bars[3][1]) == pytest.approx(bars[2][1])
    assert drawn["data"][4]["marker"]["pattern"]["shape"] == "/"


def test_a_small_change_is_drawn_on_a_marked_cut_axis() -> None:
    other = jobs.look(jobs.ddp(seed=7, number=2))[1]
    drawn = comparison_waterfall(compare(jobs.look(jobs.healthy())[1], other))
    assert drawn["layout"]["yaxis"]["range"][0] > 0
    assert "does not start at 0" in " ".join(drawn["layout"]["meta"]["notes"])


def test_the_spread_has_a_dot_for_every_window() -> None:
    run = [judged("healthy", number) for number in range(5)]
    drawn = comparison_spread(compare(run, judged("slow_callback", 9)))
    dots = [trace["customdata"] for trace in drawn["data"] if "customdata" in trace]
    assert [len(side) for side in dots] == [5, 1]


@pytest.mark.parametrize(("limit", "over"), [("0.05", True), ("0.10", True), ("3", False)])
def test_a_limit_is_held_or_broken_exactly(aba: Comparison, limit: str, over: bool) -> None:
    assert words.over_limit(aba.main, Fraction(limit)) is over
    shown = words.limit_sentence(aba, Fraction(limit))
    assert ("over the limit" in shown) is over
    assert "all of it in callbacks" in shown


def test_exactly_at_the_limit_is_within_it(aba: Comparison) -> None:
    assert aba.main.relative is not None
    assert not words.over_limit(aba.main, aba.main.relative)
    assert words.over_limit(aba.main, aba.main.relative - Fraction(1, 10**12))


def test_the_same_total_with_another_cause_is_not_called_as_fast() -> None:
    # Given two windows that are as long, one by a late data stage of rank 3, one by a late callback of it
    slow = [
        jobs.against_healthy(jobs.ddp(extra_SNR={stage: jobs.on(3, 60)}, number=number), "carry_over")[1]
        for number, stage in enumerate(("data", "callbacks"))
    ]
    found = compare(*slow)
    assert abs(float(found.main.relative or 0)) < 0.005
    headline = words.comparison(found).headline
    assert headline == "Same total, different cause: A data on rank 3, B callbacks on rank 3"


def test_a_change_within_noise_is_not_called_slower() -> None:
    # Given steps that vary by a third and are some percent longer on average in B
    made = []
    for number, longer in enumerate((0, 5 * MS)):
        duration_SNR = ddp_job(ranks=2, steps=40)
        duration_SNR[1] += np.random.default_rng(number).integers(0, 60 * MS, (40, 1)) + longer
        made.append(replace(diagnose(window_of(duration_SNR)), window=number))
    found = compare(*made)
    assert abs(float(found.main.relative or 0)) > found.gates.min_effect
    assert not found.is_beyond_noise
    shown = words.comparison(found)
    assert shown.headline.startswith("B is as fast as A (")
    assert shown.headline.endswith(" per step, within noise)")


def noisy(*added_ms: tuple[int, int]) -> list[Diagnosis]:
    """Windows whose steps vary a lot on all ranks, each with some ms more in forward and in backward."""
    made = []
    for number, (forward, backward) in enumerate(added_ms):
        duration_SNR = ddp_job(ranks=2, steps=40)
        duration_SNR[1] += np.random.default_rng(7).integers(0, 160 * MS, (40, 1)) + forward * MS
        duration_SNR[2] += backward * MS
        made.append(replace(diagnose(window_of(duration_SNR)), window=number))
    return made


def test_all_words_of_a_change_within_noise_call_it_that() -> None:
    # Given B, which is 8 % longer, within noise
    found = compare(*noisy((0, 0), (12, 0), (0, 0)))
    assert float(found.main.relative or 0) > 0.05
    shown = words.comparison(found)
    assert shown.headline.endswith(", within noise)")
    # Then it is not coloured as slower, and C recovers nothing that counts
    assert (shown.tone, shown.rest) == ("quiet", "C recovers 100 %, of a change within noise")


def test_a_total_within_noise_with_another_cause_is_not_called_the_same() -> None:
    headline = words.comparison(compare(*noisy((30, 0), (0, 42)))).headline
    assert headline.startswith("Same total within noise (+12 ms per step), different cause: ")


def test_all_numbers_of_a_stage_are_on_one_frontier() -> None:
    found = compare(*(jobs.against_healthy(made(), "step")[1] for made in (jobs.healthy, jobs.slow_callback)))
    assert found.split_on == "carry_over"
    assert not any("aligned" in column.field for column in comparison_tables.stage_columns(found))
    shares = found.b.shares("carry_over")
    assert found.document()["b"]["shares"] == shares
    rows = {row["stage"]: row for row in comparison_tables.stage_rows(found)}
    assert shares is not None
    assert rows[CALLBACKS]["share_text"].endswith(format.percent(shares[CALLBACKS]))
