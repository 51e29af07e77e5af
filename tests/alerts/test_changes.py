"""What a target is notified of: each change of a problem once, from what it knows and what is there."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sfapp.alerts.changes import (
    CHANGE_SECONDS,
    DROP_SECONDS,
    MAX_KNOWN,
    REMOVED_SECONDS,
    Known,
    changes_since,
)
from sfapp.alerts.message import MAX_BYTES, MAX_CHANGES, AlertMessage, message_of, trial_message
from sfapp.alerts.pauses import Pauses
from sfapp.errors import AlertError
from sfapp.model.onsets import StepEstimate
from sfapp.model.problems import Cost, Problem, ProblemStatus
from sfapp.service.problems import ListedProblem
from tests.hostile_text import HOSTILE_TEXT

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def problem(
    name: str = "a", *, lost: float = 60e6, status: ProblemStatus = "ongoing", **changes: Any
) -> ListedProblem:
    """Return a late rank that costs so many ns per step."""
    step = StepEstimate(120, 120, 120)
    one = Problem(
        id=name,
        run_id="train",
        kind="rank",
        stage="data.next_wait",
        ranks=(3,),
        hostname="node-0",
        windows=(3,),
        world=8,
        began=step,
        ended=step if status == "ended" else None,
        cost=Cost(40 * lost, 39 * lost, 41 * lost, 40, 40 * 150e6, 0.1),
    )
    return ListedProblem(replace(one, **changes), status)


def looks(*steps: tuple[float, list[ListedProblem]], known: Known | None = None) -> list[list[str]]:
    """Look at these times at these problems, and return what a target is notified of each time."""
    found = []
    for now, present in steps:
        changes, known = changes_since(known, present, now)
        known = msgspec.json.decode(msgspec.json.encode(known), type=dict[str, Any])
        known = msgspec.convert(known, Known)  # as after a restart
        found.append([change.kind for change in changes])
    return found


def test_a_problem_is_reported_when_it_begins_ends_and_returns_and_never_twice() -> None:
    ongoing, ended = problem(), problem(status="ended")
    healthy: list[ListedProblem] = []
    steps = [(0.0, healthy), (1.0, [ongoing]), (2.0, [ongoing]), (3.0, [ended]), (4.0, [ended])]
    assert looks(*steps, (5.0, [ongoing]), (6.0, [ongoing])) == [
        [],
        ["began"],
        [],
        ["ended"],
        [],
        ["returned"],
        [],
    ]


def test_the_first_look_reports_what_is_ongoing_and_nothing_that_has_ended() -> None:
    assert looks((0.0, [problem("a"), problem("b", status="ended")]), (1.0, [])) == [["began"], []]


def test_the_first_look_reports_no_problem_of_a_run_that_is_no_longer_recorded() -> None:
    # Given a run whose next window is overdue
    gone = problem(stale_from=datetime.fromtimestamp(0, UTC))
    assert looks((1.0, [gone]), (2.0, [gone]), (100.0, [])) == [[], [], []]
    # When it is recorded again and still has the problem, then that has returned, also if it is over by now
    for later in (problem(windows=(3, 4)), problem(windows=(3, 4), stale_from=gone.problem.stale_from)):
        assert looks((1.0, [gone]), (2.0, [later]), (3.0, [later])) == [[], ["returned"], []]
    # A problem that was found since the first look is reported, however late
    assert looks((1.0, []), (2.0, [gone])) == [[], ["began"]]


def test_what_began_and_ended_between_two_looks_is_reported_as_ended() -> None:
    assert looks((0.0, []), (1.0, [problem(status="ended")]), (2.0, [problem(status="ended")])) == [
        [],
        ["ended"],
        [],
    ]


def test_what_returned_and_ended_between_two_looks_is_reported_as_ended() -> None:
    ended, again = problem(status="ended"), problem(status="ended", windows=(3, 9))
    steps = [(0.0, [problem()]), (1.0, [ended]), (2.0, [again]), (3.0, [again])]
    assert looks(*steps) == [["began"], ["ended"], ["ended"], []]
    # Two problems that have ended and are found to be one had not returned
    two = [problem("a", status="ended"), problem("b", status="ended", windows=(9,))]
    one = problem("a", status="ended", windows=(3, 9), other_ids=("b",))
    assert looks((0.0, two), (1.0, [one])) == [[], []]


@pytest.mark.parametrize(
    "changed",
    [problem(lost=120e6), problem(lost=30e6), problem(ranks=(3, 4))],
    ids=["twice as costly", "half as costly", "other ranks"],
)
def test_a_change_is_reported_once_and_not_at_once_again(changed: ListedProblem) -> None:
    late = CHANGE_SECONDS
    steps = [
        (0.0, [problem()]),
        (1.0, [changed]),
        (late, [changed]),
        (late + 1, [changed]),
        (2 * late, [problem()]),
    ]
    assert looks(*steps) == [["began"], [], ["changed"], [], ["changed"]]


def test_a_cost_that_varies_or_grows_with_time_is_no_change() -> None:
    still = problem(kind="standstill")
    for before, after in ((problem(), problem(lost=100e6)), (still, problem(kind="standstill", lost=6e9))):
        assert looks((0.0, [before]), (CHANGE_SECONDS, [after])) == [["began"], []]


def test_slow_growth_adds_up_to_a_change() -> None:
    steps = [(hour * CHANGE_SECONDS, [problem(lost=60e6 * 1.3**hour)]) for hour in range(4)]
    assert looks(*steps) == [["began"], [], [], ["changed"]]


def test_what_users_have_muted_or_fixed_is_not_reported_until_it_returns() -> None:
    muted, fixed, returned = problem(status="muted"), problem(status="fixed"), problem(status="returned")
    assert looks((0.0, [muted]), (1.0, [muted]), (2.0, [problem()])) == [[], [], ["returned"]]
    assert looks((0.0, [problem()]), (1.0, [muted]), (2.0, [problem()])) == [["began"], [], []]
    assert looks((0.0, [problem()]), (1.0, [fixed]), (2.0, [returned])) == [["began"], [], ["returned"]]


def test_what_was_noted_by_a_clock_ahead_keeps_no_change_back() -> None:
    ahead = 1e9
    steps = [(ahead, [problem()]), (0.0, [problem(lost=120e6)]), (1.0, [problem(lost=120e6)])]
    assert looks(*steps) == [["began"], ["changed"], []]
    gone = [(ahead, [problem()]), (ahead + 1, []), (0.0, []), (REMOVED_SECONDS, [])]
    assert looks(*gone) == [["began"], [], [], ["removed"]]


def test_a_problem_under_another_id_is_the_same() -> None:
    steps = [(0.0, [problem("a"), problem("b")]), (1.0, [problem("c", other_ids=("a", "b"))])]
    assert looks(*steps, (1.0 + REMOVED_SECONDS, [problem("c")])) == [["began", "began"], [], []]


def test_a_problem_that_is_gone_is_reported_once_after_a_while_and_dropped_later() -> None:
    gone = 1.0 + REMOVED_SECONDS
    assert looks((0.0, [problem()]), (1.0, []), (2.0, [problem()]), (3.0, [])) == [["began"], [], [], []]
    assert looks((0.0, [problem()]), (1.0, []), (gone, []), (gone + 1, [])) == [
        ["began"],
        [],
        ["removed"],
        [],
    ]
    _, known = changes_since({}, [problem(status="ended")], 0.0)
    _, kept = changes_since(known, [], 1.0)
    _, dropped = changes_since(kept, [], 1.0 + DROP_SECONDS)
    assert (len(kept), len(dropped)) == (1, 0)


def test_the_state_is_bounded() -> None:
    one = changes_since({}, [problem(status="ended")], 0.0)[1]["a"]
    known = {
        str(number): msgspec.structs.replace(one, missing_since=number) for number in range(MAX_KNOWN + 5)
    }
    _, kept = changes_since(known, [problem("new")], MAX_KNOWN + 6.0)
    assert len(kept) == MAX_KNOWN
    assert "new" in kept
    assert "0" not in kept


@pytest.mark.parametrize("status", ["ongoing", "ended"])
def test_however_many_problems_a_store_has_each_is_reported_once(status: ProblemStatus) -> None:
    # Given more problems than are kept of those that are not found
    number = MAX_KNOWN + 10
    every = [problem(str(each), status=status) for each in range(number)]
    # When a target looks at them again, then there is no news
    changes, known = changes_since({}, every, 0.0)
    assert len(changes) == number
    changes, known = changes_since(known, every, 1.0)
    assert (changes, len(known)) == ([], number)


def message(*present: ListedProblem, link_base: str | None = None) -> AlertMessage:
    changes, _ = changes_since(None, present, 0.0)
    return message_of(changes, NOW, link_base)


def test_a_message_states_problem_cost_place_and_link() -> None:
    found = message(problem("a b"), link_base="https://sfapp.example.org/x/")
    assert found.title == "sfapp: began: Rank 3 (node-0) is late in data, every step (train)"
    assert "60.0 ms of 150.0 ms per step" in found.text
    assert "window 3 of train" in found.text
    assert found.text.endswith("\n  https://sfapp.example.org/x/problems/a%20b")
    content = msgspec.json.decode(found.body)
    assert content["version"] == 1
    assert content["id"] == found.id
    assert content["changes"][0]["problem"]["ranks"] == [3]
    assert found.needs_attention
    assert not trial_message(NOW).needs_attention


def test_many_changes_are_counted_and_a_large_message_leaves_problems_out() -> None:
    many = message(*(problem(str(number), ranks=tuple(range(9_000))) for number in range(MAX_CHANGES + 5)))
    assert many.title == "sfapp: 25 problems: 25 began"
    assert many.text.endswith("and 5 more")
    content = msgspec.json.decode(many.body)
    assert (content["count"], len(content["changes"])) == (25, MAX_CHANGES)
    assert content["changes"][0]["problem"] is None
    assert len(many.body) < MAX_BYTES


def test_names_from_packets_steer_neither_a_terminal_nor_a_chat() -> None:
    run_id = f"@everyone ~channel #tag ||x|| <!channel> {HOSTILE_TEXT}"
    found = message(problem(run_id=run_id, stage=HOSTILE_TEXT, hostname=HOSTILE_TEXT))
    for text in (found.title, *found.text.split("\n")):
        assert text.isprintable() or not text
        assert not set("@#~|<>[]`") & set(text)
        assert "://" not in text


@pytest.mark.parametrize(
    ("hours", "zone", "moment", "holds"),
    [
        ("22:00-07:00", "UTC", "23:10", True),
        ("22:00-07:00", "UTC", "06:59", True),
        ("22:00-07:00", "UTC", "07:00", False),
        ("09:00-17:30", "UTC", "12:00", True),
        ("09:00-17:30", "UTC", "17:30", False),
        ("22:00-07:00", "Asia/Tokyo", "13:30", True),
    ],
)
def test_nothing_is_sent_at_some_times_of_day(hours: str, zone: str, moment: str, holds: bool) -> None:
    at = datetime.fromisoformat(f"2026-03-01T{moment}:00+00:00")
    assert Pauses.of([hours], zone).hold_at(at) is holds


@pytest.mark.parametrize("hours", ["22-7", "25:00-07:00", "07:00-07:00", "", "22:00–07:00", "²2:00-07:00"])
def test_a_time_that_is_none_is_refused(hours: str) -> None:
    with pytest.raises(AlertError):
        Pauses.of([hours], None)
    with pytest.raises(AlertError, match="no time zone"):
        Pauses.of([], "Nowhere/../etc")
