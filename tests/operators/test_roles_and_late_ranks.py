"""Ranks that do different work, or begin their steps late: their cohort, and the reported reasons."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfapp.accounting import diagnose
from sfapp.model import Operators, Window
from sfapp.operators import AGREEMENT_REASONS, agreement, examine, examine_window
from sfapp.views import text as words
from tests.builders import BACKWARD, DATA, FORWARD, MS, window_of
from tests.operators.lanes import Event, event, operators

LATE, STEPS = 6, 4


def pipeline(roles: int, replicas: int, late_us: float = 0) -> tuple[Operators, dict[int, str]]:
    """Each pipeline stage's forward takes twice as long as that of the stage before; one replica of the last
    stage is late."""
    events: list[Event] = []
    role_of = {}
    random = np.random.default_rng(0)
    for role in range(roles):
        for replica in range(replicas):
            rank = role * replicas + replica
            role_of[rank] = f"pp{role}"
            late = late_us if rank == roles * replicas - 1 else 0.0
            for step in range(STEPS):
                begin = 100_000 * step
                end = begin + 1_000 * 2**role + late + random.uniform(0, 10)
                events += [
                    event(rank, "thread 1", "forward", begin, end, step=step),
                    event(rank, "thread 1", "optimizer", end, end + 500, step=step),
                ]
    return operators(events), role_of


def test_a_rank_is_compared_with_those_of_its_role_alone() -> None:
    events, role_of = pipeline(3, 4, late_us=900)

    blind, found = examine(events), examine(events, role_of)

    assert not blind.blame.causes  # beside stages of twice the length a late replica does not stand out
    first, *others = found.blame.causes
    assert (first.rank, first.name) == (11, "forward")
    assert first.delay_ns / 1e3 / STEPS == pytest.approx(900, rel=0.02)
    assert all(cause.worst_ns < 20_000 for cause in others)
    assert {row.rank for row in found.outliers.rows() if abs(row.longer_ns) > 50_000} == {11}
    assert found.similarity.ranks[found.similarity.order_R[0]] == 11
    assert found.outliers.score == "robust"  # 4 of a role, 12 in all


def test_roles_of_fewer_than_three_ranks_name_no_cause_and_give_the_reason() -> None:
    events, role_of = pipeline(4, 2, late_us=900)
    window = window_of(np.full((3, STEPS, 8), MS, dtype=np.int64), stages=(DATA, FORWARD, BACKWARD))
    ranks = replace(window.ranks, role=tuple(role_of.values()))
    window = replace(window, ranks=ranks)

    found = examine_window(events, window)

    agreed = agreement(diagnose(window), found, window)
    assert not found.blame.causes
    assert "at most 2 play the same role" in found.blame.notes[0]
    assert "at most 2 of 8 ranks play the same role" in words.stragglers_headline(found, agreed)
    alone = examine_window(events.select(events.rank_E % 2 == 0), window)
    assert agreement(diagnose(window), alone, window).first_rank is None


def carried_over() -> tuple[Window, Operators]:
    """Rank 2 is late in every step's last stage, and so in the next step's begin: there the others wait."""
    events: list[Event] = []
    spent = np.zeros((3, STEPS, LATE), np.int64)
    begin = np.zeros(LATE)
    begin[2] = 30
    for step in range(STEPS):
        loaded = begin + 5
        synced = loaded.max() + 40
        ended = synced + 20 + np.where(np.arange(LATE) == 2, 30, 0)
        for rank in range(LATE):
            rows = (
                ("load", "data", begin[rank], loaded[rank], {}),
                ("exchange", "collective", loaded[rank], synced, {"group": "all", "sequence": step}),
                ("update", "host", synced, ended[rank], {}),
            )
            for place, (name, category, start, end, tie) in enumerate(rows):
                spent[place, step, rank] = round((end - start) * MS)
                events.append(
                    event(
                        *(rank, "thread 1", name, 1_000 * start, 1_000 * end),
                        category=category,
                        step=step,
                        **tie,
                    )
                )
        begin = ended
    return window_of(spent, stages=(DATA, FORWARD, BACKWARD)), operators(events)


def test_what_a_rank_does_late_is_not_seen_in_how_long_it_takes() -> None:
    window, events = carried_over()

    diagnosis = diagnose(window)
    found = agreement(diagnosis, examine(events), window)

    assert diagnosis.is_healthy
    assert found.kind == "kair_only"
    assert found.cause is not None
    assert (found.cause.rank, found.cause.name) == (2, "update")
    assert found.reasons == ("late_start",)
    assert "began these steps late" in AGREEMENT_REASONS["late_start"]
