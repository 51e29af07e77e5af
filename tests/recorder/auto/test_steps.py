"""From events to a step, in exact nanoseconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sfapp.model.stages import BACKWARD, BETWEEN, CALLBACKS, DATA, FORWARD, OPTIMIZER
from sfapp.recorder.auto.steps import (
    BATCH,
    EXHAUSTED,
    STARTED,
    PreviousStep,
    TimedStep,
    TrainingEvent,
    read_step,
)
from sfapp.recorder.side_channels.channels import EventSampler
from sfapp.recorder.side_channels.device_waits import SampledStep
from tests.recorder.device_standins import HostDevice

TRAIN, HELD_OUT = 1, 2


def events(spelled: str, gap: int = 1, last: int = 10) -> list[TrainingEvent]:
    """One event a letter, ``last`` ns each and ``gap`` ns apart: i(terator), d(ata), x (no batch left), v and
    y the same of the held-out loader, f(orward), n(o gradients), b(ackward), o(ptimizer)."""
    kinds = {
        "i": ("data", TRAIN, STARTED), "d": ("data", TRAIN, BATCH), "x": ("data", TRAIN, EXHAUSTED),
        "v": ("data", HELD_OUT, BATCH), "y": ("data", HELD_OUT, EXHAUSTED),
        "f": ("forward", 0, 1), "n": ("forward", 0, 0),
        "b": ("backward", 0, None), "o": ("optimizer", 3, None),
    }  # fmt: skip
    found, now = [], 100
    for letter in spelled:
        kind, key, mark = kinds[letter]
        now += gap
        found.append(TrainingEvent(kind, now, now + last, key, mark))
        now += last
    return found


def step_of(spelled: str, before: PreviousStep | None = None) -> TimedStep:
    step = read_step(events(spelled), before or PreviousStep(100))
    assert step is not None
    return step


def test_a_plain_step_is_cut_at_what_was_seen() -> None:
    step = step_of("dfbo")
    assert step.micro_steps == ({CALLBACKS: 1, DATA: 10, FORWARD: 12, BACKWARD: 10, OPTIMIZER: 11},)
    assert step.wall_ns == 44
    assert step.after == PreviousStep(144)


def test_the_first_step_begins_with_its_first_wait() -> None:
    step = step_of("ndfbo", PreviousStep())
    assert CALLBACKS not in step.micro_steps[0]
    assert step.wall_ns == 43


def test_an_evaluation_that_runs_out_or_breaks_off_is_callbacks() -> None:
    for spelled in ("vnvnydfbo", "vnvndfbo", "nnnnndfbo"):
        step = step_of(spelled)
        assert step.micro_steps[0][DATA] == 10
        assert step.micro_steps[0][CALLBACKS] == 11 * (len(spelled) - 4) + 1


def test_the_end_of_an_epoch_is_a_wait_for_data() -> None:
    step = step_of("xvnyidfbo")
    assert step.micro_steps[0][DATA] == 10 + 20  # finding none left, starting again, and the batch
    assert step.micro_steps[0][CALLBACKS] == 4 * 11 + 1 - 10


def test_a_batch_fetched_early_is_held_for_the_next_step() -> None:
    for spelled in ("fdbo", "fbdo"):
        step = step_of(spelled, PreviousStep(100, held_ns=7))
        assert step.after.held_ns == 10
        assert step.micro_steps[0][DATA] == 7
        assert step.wall_ns == 44 - 10 + 7
        assert sum(step.micro_steps[0].values()) == step.wall_ns


def test_what_belonged_to_no_step_lies_between_the_steps() -> None:
    step = step_of("dfbdfbo", PreviousStep(100, between_ns=9))
    assert [stages.get(BETWEEN) for stages in step.micro_steps] == [9, None]
    assert step.wall_ns == 77 + 9
    assert step.after.between_ns == 0


def test_batches_fetched_far_ahead_are_flagged() -> None:
    assert "prefetch_unaligned" in step_of("dfbddo").faults
    assert step_of("ddfbo").faults == {}


def test_a_second_loss_is_the_same_micro_step() -> None:
    step = step_of("dfbbo")
    assert len(step.micro_steps) == 1
    assert step.micro_steps[0][BACKWARD] == 20


def test_micro_steps_are_separated_with_and_without_forwards() -> None:
    assert [len(step_of(spelled).micro_steps) for spelled in ("dfbdfbdfbo", "dbdbdbo", "dddfbfbfbo")] == [
        3
    ] * 3


def test_without_forwards_a_loader_that_stops_short_is_unclear() -> None:
    assert "loop_unclear" in step_of("vvdbo").faults
    assert step_of("vvydbo").faults == {}
    assert step_of("vvydbo").micro_steps[0][DATA] == 10


def test_steps_without_backward_are_none_of_ours() -> None:
    assert read_step(events("dfo"), PreviousStep()) is None
    assert read_step(events("dfb"), PreviousStep()) is None


@given(st.text("idxvyfnb", max_size=14), st.booleans(), st.integers(0, 50))
def test_whatever_was_seen_the_stages_fit_into_the_step(spelled: str, first: bool, held: int) -> None:
    before = PreviousStep() if first else PreviousStep(100, held, between_ns=held // 2)
    step = read_step(events(f"{spelled}bo"), before)
    assert step is not None
    spent = [ns for stages in step.micro_steps for ns in stages.values()]
    assert min(spent) >= 0
    assert 0 <= sum(spent) <= step.wall_ns


def test_a_wait_belongs_to_the_stage_in_which_it_begins() -> None:
    # dfbo: data 101 to 111, forward 112 to 122, backward 123 to 133, optimizer 134 to 144
    waits = [(105, 106), (113, 116), (120, 121), (125, 133), (135, 140)]
    step = read_step(events("dfbo"), PreviousStep(100), waits)
    assert step is not None
    assert step.waits == ({FORWARD: 4, BACKWARD: 8, OPTIMIZER: 5},)


def test_a_wait_after_the_step_belongs_to_no_stage() -> None:
    # dfbo: the step ends at 144; before the next one's first forward, other ranks may be waited for too
    step = read_step(events("dfbo"), PreviousStep(100), [(135, 140), (144, 150), (160, 161)])
    assert step is not None
    assert step.waits == ({OPTIMIZER: 5},)


def test_a_call_on_the_device_belongs_to_the_stage_in_which_it_begins() -> None:
    sampler = EventSampler(1.0, HostDevice())
    # dfb: data 101 to 111, forward 112 to 122, backward 123 to 133; dfb again 33 ns later; o: 167 to 177
    sampled = SampledStep(sampler, 0, places=[105, 113, 125, 140, 147, 158, 170, 177], ms=[1.0] * 8)
    step = read_step(events("dfbdfbo"), PreviousStep(100), sampled=sampled)
    assert step is not None
    assert step.device_calls is not None
    first = ((0, FORWARD), (0, BACKWARD), (0, BACKWARD))
    second = ((1, FORWARD), (1, BACKWARD), (1, OPTIMIZER))
    assert step.device_calls.stages == (None, *first, *second, None)


def test_waits_of_micro_steps_are_kept_apart() -> None:
    # dfb: as above; dfb again 33 ns later
    step = read_step(events("dfbdfbo"), PreviousStep(100), [(124, 126), (157, 160)])
    assert step is not None
    assert step.waits == ({BACKWARD: 2}, {BACKWARD: 3})


def test_without_waits_there_are_none() -> None:
    assert step_of("dfbo").waits == ({},)
