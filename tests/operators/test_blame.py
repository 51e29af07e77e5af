"""Why: each rule of the backward trace by hand, then planted causes in generated jobs."""

from __future__ import annotations

import pytest

from sfapp.model import Operators
from sfapp.operators import Blame, blame
from sfapp.operators.collectives import joins_of
from sfapp.operators.dependency_graph import Edge, dependency_graph
from tests.operators.lanes import Event, event, operators

RANKS = range(5)
CULPRIT = 2


def chain(slow: float = 0, gap: float = 0, collective: bool = True) -> list[Event]:
    """Each rank runs a, b, c and then a collective; on one rank, a is slow or b waits for nothing."""
    events: list[Event] = []
    arrivals = []
    for rank in RANKS:
        at = 0.0
        for name in ("a", "b", "c"):
            at += gap if (rank, name) == (CULPRIT, "b") else 0
            length = 100 + (slow if (rank, name) == (CULPRIT, "a") else 0)
            events.append(event(rank, "thread 1", name, at, at + length))
            at += length
        arrivals.append(at)
    if collective:
        events += [
            event(
                *(rank, "thread 1", "all_reduce", at, max(arrivals) + 40),
                category="collective",
                group="world",
                sequence=0,
            )
            for rank, at in zip(RANKS, arrivals, strict=True)
        ]
    return events


def first(found: Blame) -> tuple[str, str, int, str]:
    cause = found.causes[0]
    return cause.kind, cause.nature, cause.rank, cause.name


def test_what_took_long_itself_is_a_cause() -> None:
    """Rule 1, and 2a and 2b for its victims."""
    found = blame(operators(chain(slow=500)))

    assert first(found) == ("operator", "compute", CULPRIT, "a")
    cause = found.causes[0]
    assert len(found.causes) == 1
    assert cause.delay_ns == pytest.approx(500_000)
    assert cause.symptoms == 4  # a itself; b, c and the collective start late
    assert cause.holds_up
    assert [step.name for step in cause.path] == ["a", "b"]
    assert found.unexplained == 0


def test_a_late_start_after_a_punctual_predecessor_blames_the_edge() -> None:
    """Rule 2c."""
    found = blame(operators(chain(gap=500)))

    assert first(found) == ("edge", "idle", CULPRIT, "b")
    cause = found.causes[0]
    assert (cause.source, cause.source_rank) == ("a", CULPRIT)
    assert cause.delay_ns == pytest.approx(500_000)


def test_waiting_in_a_collective_is_not_its_own_time() -> None:
    """The others' all-reduce is 500 µs longer; the victims are not blamed for it."""
    found = blame(operators(chain(slow=500)))
    assert {cause.rank for cause in found.causes} == {CULPRIT}


def test_a_victim_on_another_rank_is_traced_through_the_collective() -> None:
    events = chain(slow=500, collective=False)
    for rank in RANKS:
        pair = (CULPRIT, 3)
        late = 500 if rank == CULPRIT else 0
        end = 840 if rank in pair else 340
        group = {"category": "collective", "sequence": 0}
        events.append(
            event(rank, "thread 1", "pair", 300 + late, end, group="p" if rank in pair else "q", **group)
        )
        events.append(event(rank, "thread 1", "d", end, end + 10))
    found = blame(operators(events))

    assert first(found) == ("operator", "compute", CULPRIT, "a")
    assert len(found.causes) == 1
    assert found.causes[0].symptoms == 6  # with d on both ranks of the pair


def test_the_slower_branch_of_a_diamond_is_blamed() -> None:
    """A call waits for two streams; only the later of the two holds it up."""
    events: list[Event] = []
    for rank in RANKS:
        slow = 400 if rank == CULPRIT else 0
        end = 300 + slow
        events += [
            event(rank, "thread 1", "cudaLaunchKernel", 0, 5, category="runtime", correlation=1),
            event(rank, "thread 1", "cudaLaunchKernel", 5, 10, category="runtime", correlation=2),
            event(rank, "stream 7", "left", 10, 250, category="kernel", correlation=1),
            event(rank, "stream 8", "right", 12, end, category="kernel", correlation=2),
            event(rank, "thread 1", "cudaDeviceSynchronize", 10, end + 3, category="runtime"),
            event(rank, "thread 1", "optimizer", end + 3, end + 50),
        ]
    found = blame(operators(events))

    assert first(found) == ("operator", "compute", CULPRIT, "right")
    path = found.causes[0].path
    assert [step.name for step in path] == ["right", "cudaDeviceSynchronize", "optimizer"]
    assert [step.via for step in path] == ["", "device", "program"]


def test_a_backward_node_is_held_up_by_its_forward_operator() -> None:
    events: list[Event] = []
    for rank in RANKS:
        late = 300 if rank == CULPRIT else 0
        events += [
            event(rank, "thread 1", "forward", 0, 100 + late, autograd=7),
            event(rank, "thread 2", "backward", 102 + late, 150 + late, autograd=7, category="autograd"),
        ]
    found = blame(operators(events))
    assert first(found) == ("operator", "compute", CULPRIT, "forward")
    assert found.causes[0].path[-1].via == "autograd"


def test_a_collective_on_a_thread_of_its_own_waits_for_the_call_that_made_it() -> None:
    """As under Gloo: its thread ran the last one long before; what held it up is on the training's."""
    events: list[Event] = []
    for rank in RANKS:
        slow = 500 if rank == CULPRIT else 0
        sync = {"category": "collective", "group": "world"}
        events += [
            event(rank, "thread 1", "c10d::allreduce_", 0, 10),
            event(rank, "thread 2", "gloo:all_reduce", 12, 40, sequence=0, **sync),
            event(rank, "thread 1", "load", 50, 100 + slow),
            event(rank, "thread 1", "c10d::allreduce_", 110 + slow, 120 + slow),
            event(rank, "thread 2", "gloo:all_reduce", 122 + slow, 640, sequence=1, **sync),
        ]
    found = blame(operators(events))

    assert first(found) == ("operator", "compute", CULPRIT, "load")
    (cause,) = found.causes
    assert [(step.name, step.via) for step in cause.path] == [("load", ""), ("c10d::allreduce_", "program")]
    assert cause.symptoms == 3  # itself, the call, the collective


def test_calls_and_collectives_pair_from_the_last_one_back() -> None:
    """The first collective's call was made before these events begin."""
    events = [
        event(0, "thread 2", "gloo:all_reduce", 0, 40, category="collective"),
        event(0, "thread 1", "c10d::allreduce_", 50, 60),
        event(0, "thread 1", "c10d::broadcast_", 60, 70),
        event(0, "thread 2", "gloo:all_reduce", 62, 90, category="collective"),
        event(0, "thread 2", "gloo:broadcast", 90, 99, category="collective"),
        event(1, "thread 1", "nccl:all_reduce", 0, 40, category="collective"),
    ]
    made = operators(events)
    found = dependency_graph(made, joins_of(made))
    launches = found.kind_D == Edge.LAUNCH
    from_event, to_event = found.from_D[launches] // 2, found.to_D[launches] // 2
    assert dict(zip(from_event.tolist(), to_event.tolist(), strict=True)) == {1: 3, 2: 4}


def test_an_operator_with_own_time_between_its_nested_operators_is_named() -> None:
    """A loader that sleeps before each of four samples: no one gap is half of it, and all are its own."""
    events: list[Event] = []
    for rank in RANKS:
        slow = 30_000 if rank == CULPRIT else 0
        reads = [100 + (100 + slow) * place for place in range(1, 5)]
        end = reads[-1] + 50
        events.append(event(rank, "thread 1", "enumerate(DataLoader)", 100, end, category="data"))
        events += [event(rank, "thread 1", "aten::ones", at, at + 20) for at in reads]
        events.append(event(rank, "thread 1", "forward", end + 10, end + 60))
        sync = {"category": "collective", "group": "world", "sequence": 0}
        events.append(event(rank, "thread 1", "all_reduce", end + 60, 130_000, **sync))
    found = blame(operators(events))

    assert first(found) == ("operator", "input", CULPRIT, "enumerate(DataLoader)")
    cause = found.causes[0]
    assert cause.delay_ns == pytest.approx(120e6)
    assert cause.holds_up


def test_the_innermost_operator_is_named() -> None:
    events: list[Event] = []
    for rank in RANKS:
        late = 300 if rank == CULPRIT else 0
        events += [
            event(rank, "thread 1", "linear", 0, 120 + late),
            event(rank, "thread 1", "addmm", 10, 110 + late),
            event(rank, "thread 1", "relu", 130 + late, 150 + late),
        ]
    found = blame(operators(events))
    assert [cause.name for cause in found.causes] == ["addmm"]


def test_what_only_one_rank_does_is_named() -> None:
    events = chain(gap=500)
    events.append(event(CULPRIT, "thread 1", "gc.collect", 101, 599))
    assert first(blame(operators(events))) == ("extra", "compute", CULPRIT, "gc.collect")


def test_a_rank_that_begins_late_is_marked_as_such() -> None:
    events = [event(rank, "thread 1", "a", 300 * (rank == CULPRIT), 900) for rank in RANKS]
    assert first(blame(operators(events))) == ("before", "unknown", CULPRIT, "a")


def test_a_transfer_that_is_slow_in_one_step_is_communication() -> None:
    events: list[Event] = []
    for step in range(4):
        for rank in RANKS:
            begin, end = 1_000 * step + rank, 1_000 * step + (700 if step == 2 else 200)
            events += [
                event(
                    *(rank, "stream 20", "all_reduce", begin, end),
                    category="collective",
                    group="world",
                    sequence=step,
                    step=step,
                )
            ]
    found = blame(operators(events))
    assert first(found) == ("transfer", "communication", 4, "all_reduce")
    assert found.causes[0].steps == (2,)
    assert [each.slow_ns for each in found.collectives] == [0, 0, 500_000, 0]


def test_clocks_that_differ_are_noticed_and_starts_left_alone() -> None:
    """Rank 4's clock is two seconds ahead: it is late in everything, and is not blamed for it."""
    right = operators(chain(slow=500))
    ahead = 2_000_000_000 * (right.rank_E == 4)
    wrong = Operators.of(
        names=right.names,
        name_E=right.name_E,
        category_E=right.category_E,
        lanes=right.lanes,
        lane_E=right.lane_E,
        step_E=right.step_E,
        start_ns_E=right.start_ns_E + ahead,
        end_ns_E=right.end_ns_E + ahead,
        groups=right.groups,
        group_E=right.group_E,
        sequence_E=right.sequence_E,
    )
    found = blame(wrong)
    assert first(found) == ("operator", "compute", CULPRIT, "a")
    assert {cause.rank for cause in found.causes} == {CULPRIT}
    assert any("clocks differ" in note for note in found.notes)


def test_waiting_in_a_collective_that_cannot_be_matched_is_no_cause() -> None:
    """Only one rank's collective has a number, so waits between ranks are unknown."""
    events = chain(slow=500, collective=False)
    for rank in RANKS:
        late = 500 if rank == CULPRIT else 0
        end = 840 if rank in (CULPRIT, 3) else 340
        events += [
            event(rank, "thread 1", "pair", 300 + late, end, category="collective"),
            event(rank, "thread 1", "d", end, end + 10),
        ]
    found = blame(operators(events))
    assert {cause.rank for cause in found.causes} == {CULPRIT}
    assert found.unexplained == 2  # d, on both ranks of the pair


def test_two_ranks_name_no_cause() -> None:
    events = [row for row in chain(slow=500) if row[0] in (CULPRIT, 3)]
    found = blame(operators(events))
    assert not found.causes
    assert any("tell which one differs" in note for note in found.notes)


def test_no_events_name_no_cause() -> None:
    assert not blame(operators([])).causes


def test_what_overlaps_inside_an_operator_counts_once() -> None:
    """Two ranges overlap inside one operator; together they are all of it, so it took no time itself."""
    events: list[Event] = []
    for rank in RANKS:
        late = 300 if rank == CULPRIT else 0
        events += [
            event(rank, "thread 1", "outer", 0, 100 + late),
            event(rank, "thread 1", "one", 0, 60),
            event(rank, "thread 1", "two", 40, 100 + late),
        ]
    found = blame(operators(events))
    assert [(cause.rank, cause.name) for cause in found.causes] == [(CULPRIT, "two")]


def test_events_that_cannot_be_do_not_hang_it() -> None:
    """Everything at one instant, tied to itself in every way."""
    events = [
        event(rank, lane, "op", 0, 0, correlation=1, autograd=1, category=category, group="g", sequence=1)
        for rank in RANKS
        for lane in ("thread 1", "stream 7")
        for category in ("runtime", "autograd", "collective", "host")
    ]
    assert not blame(operators(events)).causes
