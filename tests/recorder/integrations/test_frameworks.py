"""Lightning, Hugging Face's Trainer and Accelerate, each training for real on two ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sfapp
from sfapp.model import BETWEEN, Accumulation, Window
from sfapp.packets import read_windows
from tests.forked_ranks import HEAVY
from tests.recorder.integrations.launching import (
    DATA,
    DELAY_NS,
    STEPS,
    is_whole,
    likely_cause_is_data_of_rank_1,
    only_window,
    run_job,
)

pytestmark = pytest.mark.torchrun

CALLBACKS, OPTIMIZER = "callbacks.cpu_wall", "optim.step_cpu_wall"
IN_TWO = Accumulation(factor=2, ordered=True, sync="last")


@pytest.fixture(scope="module")
def lightning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("lightning", reason="lightning is not installed", exc_type=ImportError)
    root = tmp_path_factory.mktemp("lightning")
    run_job("frameworks.py", root, "lightning", modules=(*HEAVY, "lightning.pytorch"))
    return root


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of the Trainer and those with Accelerate, one after the other in the same processes."""
    pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)
    pytest.importorskip("accelerate", reason="accelerate is not installed", exc_type=ImportError)
    root = tmp_path_factory.mktemp("hugging-face")
    run_job("frameworks.py", root, "trainer", "accelerate", modules=(*HEAVY, "transformers.trainer"))
    return root


@pytest.mark.parametrize("run_id", ["lightning", "lightning-accumulating", "lightning-manual"])
def test_lightning_leaves_whole_packets_that_name_the_slow_rank(lightning: Path, run_id: str) -> None:
    window = only_window(lightning, run_id)
    is_whole(window)
    assert window.manifest.wrapper == "ddp"
    likely_cause_is_data_of_rank_1(window)


def between_ns(window: Window) -> np.ndarray:
    """The time between steps, int64 [N, R] ns; none before the first."""
    place = window.stages.index(BETWEEN)
    between_NR = np.asarray(window.duration_SNR[place])
    assert place == 0
    assert not between_NR[0].any()
    return between_NR


def waits_in(window: Window, stage: str) -> None:
    """Rank 0 waits for rank 1 inside the stage: the packet says for how long."""
    waited_R = np.median(window.waits[stage], axis=0)
    assert waited_R[0] > 0.5 * DELAY_NS > waited_R[1]


def test_lightning_s_accumulation_is_kept_apart_and_validation_lies_between_steps(lightning: Path) -> None:
    window = only_window(lightning, "lightning-accumulating")
    assert window.manifest.accumulation == IN_TWO
    # two validations of 100 ms each: the second ends the epoch, and no step follows it
    between_N = between_ns(window)[:, 0].tolist()
    assert [step for step, ns in enumerate(between_N) if ns >= DELAY_NS] == [2, 4]
    waits = window.duration_SNR[window.stages.index(f"{DATA}[0]")]
    assert (waits[:, 0] < 0.8 * DELAY_NS).all()


def test_another_callback_of_lightning_is_in_the_callbacks_stage_and_named(lightning: Path) -> None:
    window = only_window(lightning, "lightning-callback")
    is_whole(window)
    assert BETWEEN not in window.stages  # its switches are the recorder's
    assert not window.waits
    assert int(window.duration_SNR[window.stages.index(CALLBACKS), :, 1].min()) >= DELAY_NS
    aim = sfapp.diagnose(window).aim
    assert aim is not None
    assert (aim.stage, aim.rank) == (CALLBACKS, 1)


def test_an_accumulation_that_lightning_changes_closes_the_window(lightning: Path) -> None:
    windows = [item.window for item in read_windows([lightning / "lightning-scheduled"]).windows]
    first, second = sorted(windows, key=lambda window: window.number)
    assert [len(window.step_N) for window in (first, second)] == [STEPS, STEPS // 2]
    assert first.manifest.accumulation == Accumulation(factor=1, ordered=True, sync="every")
    assert second.manifest.accumulation == IN_TWO
    assert first.manifest.faults == second.manifest.faults == ()


def test_manual_optimization_is_separated_as_far_as_hooks_allow(lightning: Path) -> None:
    window = only_window(lightning, "lightning-manual")
    assert int(window.duration_SNR[window.stages.index(OPTIMIZER)].sum()) == 0


def test_manual_optimization_that_is_resumed_goes_on_with_the_next_step(lightning: Path) -> None:
    """Not with Lightning's number, for which each optimizer's step counts."""
    before, after = (only_window(lightning, name) for name in ("lightning-manual", "lightning-resumed"))
    assert before.step_N.tolist() == list(range(STEPS))
    assert after.step_N.tolist() == list(range(STEPS, 2 * STEPS))


def test_a_fit_that_fails_leaves_the_steps_before(lightning: Path) -> None:
    window = only_window(lightning, "lightning-failing")
    assert window.step_N.tolist() == [0, 1, 2, 3]
    assert window.manifest.closed_by == "shutdown"
    assert window.ranks.rank == (0, 1)


@pytest.mark.parametrize("run_id", ["trainer", "trainer-accumulating"])
def test_the_trainer_leaves_whole_packets_that_name_the_slow_rank(hugging_face: Path, run_id: str) -> None:
    window = only_window(hugging_face, run_id)
    is_whole(window)
    assert window.manifest.wrapper == "ddp"
    assert CALLBACKS not in window.stages  # no event of the Trainer tells other callbacks' time
    likely_cause_is_data_of_rank_1(window)
    backward = "model.backward_and_clip_cpu_wall"
    waits_in(window, backward if run_id == "trainer" else f"{backward}[1]")


def test_an_evaluation_of_the_trainer_lies_between_steps(hugging_face: Path) -> None:
    plain, evaluating = (
        between_ns(only_window(hugging_face, name)) for name in ("trainer", "trainer-accumulating")
    )
    # after every second step, with a batch for each of the samples
    assert evaluating[[2, 4]].min() > 3 * np.median(plain[1:])
    assert evaluating[[2, 4]].min() > 3 * np.median(evaluating[[1, 3, 5]])


def test_the_trainer_s_accumulation_is_kept_apart(hugging_face: Path) -> None:
    window = only_window(hugging_face, "trainer-accumulating")
    assert window.manifest.accumulation == IN_TWO
    # it fetches both batches before the first micro-step
    assert int(window.duration_SNR[window.stages.index(f"{DATA}[1]")].sum()) == 0


def test_a_compiled_model_s_forward_pass_still_ends_where_it_ends(hugging_face: Path) -> None:
    window = only_window(hugging_face, "trainer-compiled")
    is_whole(window)
    forward, backward = (
        np.median(window.duration_SNR[window.stages.index(name)], axis=0).tolist()
        for name in ("model.fwd_loss_cpu_wall", "model.backward_and_clip_cpu_wall")
    )
    assert backward[0] > 0.5 * DELAY_NS > forward[0]  # rank 0 waits for rank 1 in the backward pass


@pytest.mark.parametrize("run_id", ["accelerate", "accelerate-accumulating"])
def test_a_loop_with_accelerate_leaves_whole_packets_that_name_the_slow_rank(
    hugging_face: Path, run_id: str
) -> None:
    window = only_window(hugging_face, run_id)
    is_whole(window)
    assert window.manifest.wrapper == "ddp"
    likely_cause_is_data_of_rank_1(window)
    # 30 ms of validation after each step lie between them
    assert int(window.duration_SNR[-1].max()) < 0.2 * DELAY_NS
    assert int(between_ns(window)[1:].min()) >= 30_000_000
    backward = "model.backward_and_clip_cpu_wall"
    waits_in(window, backward if run_id == "accelerate" else f"{backward}[1]")


def test_an_accelerate_loop_records_when_gradients_are_exchanged(hugging_face: Path) -> None:
    window = only_window(hugging_face, "accelerate-accumulating")
    assert window.manifest.accumulation == IN_TWO
    first, last = (window.stages.index(f"model.backward_and_clip_cpu_wall[{micro}]") for micro in range(2))
    waits = np.median(window.duration_SNR, axis=1)[:, 0]
    assert waits[last] > 10 * waits[first]
    assert len(window.step_N) == STEPS
