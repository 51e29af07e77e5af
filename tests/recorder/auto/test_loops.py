"""Loops that know nothing of sfapp: each recorded right, or with a fault that says what is not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sfapp.model import BETWEEN, Window
from sfapp.packets import read_window
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER, OTHER

pytestmark = pytest.mark.quiet

SCRIPTS = Path(__file__).parent / "scripts"
MS = 1_000_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("loops")
    result = subprocess.run(
        [sys.executable, str(SCRIPTS / "forked.py"), str(root)], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return root


@pytest.fixture
def of(recorded: Path) -> Callable[[str], Window]:
    return lambda kind: read_window(recorded / kind)


def median_ms(window: Window, stage: str) -> float:
    return float(np.median(window.duration_SNR[window.stages.index(stage), :, 0])) / MS


def test_what_is_recorded_is_what_the_loop_measures_itself(recorded: Path) -> None:
    window = read_window(recorded / "by_hand")
    by_hand = json.loads((recorded / "by_hand.txt").read_text())
    assert window.stages == (BETWEEN, CALLBACKS, DATA, FORWARD, BACKWARD, OPTIMIZER, OTHER)
    assert by_hand == [[2 * MS, 7 * MS, 6 * MS, 1 * MS]] * 20
    assert window.duration_SNR[2:6, :, 0].T.tolist() == by_hand
    assert window.manifest.faults == ()
    assert window.manifest.wrapper == "single"


@pytest.mark.parametrize(
    "kind", ["by_hand", "evaluated", "closure_once", "scaled", "checkpointed", "compiled", "compiled_step",
             "prefetched", "two_loaders", "chunked", "frozen", "two_optimizers", "workers"]
)  # fmt: skip
def test_ordinary_loops_close_without_a_fault(of: Callable[[str], Window], kind: str) -> None:
    window = of(kind)
    assert window.manifest.faults == ()
    assert window.duration_SNR.sum(axis=0).tolist() == window.wall_NR.tolist()
    residual = int(window.duration_SNR[-1].sum()) / int(window.wall_NR.sum())
    assert residual < 0.05
    callbacks = window.stages.index(CALLBACKS)
    assert int(window.duration_SNR[callbacks, 0, 0]) == 0  # nothing comes before the first step


def test_an_evaluation_between_steps_is_a_callback_and_its_batches_are_no_wait(
    of: Callable[[str], Window],
) -> None:
    window = of("evaluated")
    assert len(window.step_N) == 10
    callbacks = window.duration_SNR[window.stages.index(CALLBACKS), :, 0].tolist()
    assert max(range(10), key=callbacks.__getitem__) == 5  # after the fifth step
    assert callbacks[5] > 18 * MS
    assert 2 <= median_ms(window, DATA) < 4


def test_a_step_in_a_closure_is_seen_as_if_it_were_not(of: Callable[[str], Window]) -> None:
    window = of("closure_once")
    assert median_ms(window, FORWARD) >= 4
    assert median_ms(window, BACKWARD) >= 6
    assert median_ms(window, OPTIMIZER) < 2


def test_a_closure_evaluated_repeatedly_belongs_to_the_optimizer_with_a_fault(
    of: Callable[[str], Window],
) -> None:
    window = of("line_search")
    assert window.manifest.faults == ("nested_stages",)
    assert median_ms(window, BACKWARD) == 0
    assert median_ms(window, OPTIMIZER) > 0
    assert len(window.step_N) == 5


def test_steps_that_the_scaler_leaves_out_are_steps(of: Callable[[str], Window]) -> None:
    window = of("scaled")
    assert len(window.step_N) == 9
    assert window.manifest.accumulation.factor == 1


def test_what_is_computed_again_in_backward_is_backward(of: Callable[[str], Window]) -> None:
    window = of("checkpointed")
    assert 40 <= median_ms(window, FORWARD) < 60
    assert 20 <= median_ms(window, BACKWARD) < 40


def test_nothing_is_compiled_a_second_time_because_of_the_hooks(recorded: Path) -> None:
    # the model, the loss, and the model again without gradients
    assert (recorded / "compiled.txt").read_text() == "3"


def test_a_training_step_is_compiled_without_a_warning_of_what_the_hooks_do(recorded: Path) -> None:
    assert "sfapp" not in (recorded / "compiled_step.err").read_text()
    assert "get_ident" not in (recorded / "compiled_step.err").read_text()


def test_two_optimizers_after_one_backward_are_one_step(of: Callable[[str], Window]) -> None:
    assert len(of("two_optimizers").step_N) == 6


def test_optimizers_that_take_turns_are_flagged(of: Callable[[str], Window]) -> None:
    window = of("adversarial")
    assert window.manifest.faults == ("optimizers_alternate",)
    assert len(window.step_N) == 12


def test_the_wait_for_a_batch_is_charged_to_the_step_that_uses_it(of: Callable[[str], Window]) -> None:
    window = of("prefetched")
    waits = window.duration_SNR[window.stages.index(DATA), :, 0]
    assert len(waits) == 6
    assert int(waits.min()) >= 2 * MS
    assert median_ms(window, FORWARD) < 6


def test_waits_for_several_loaders_add_up(of: Callable[[str], Window]) -> None:
    assert median_ms(of("two_loaders"), DATA) >= 4


def test_batches_fetched_by_a_thread_are_flagged(of: Callable[[str], Window]) -> None:
    assert "prefetch_unaligned" in of("threaded").manifest.faults


def test_a_batch_in_two_parts_is_two_micro_steps(of: Callable[[str], Window]) -> None:
    window = of("chunked")
    assert (window.manifest.accumulation.factor, window.manifest.accumulation.ordered) == (2, True)
    assert median_ms(window, f"{DATA}[0]") >= 2
    assert median_ms(window, f"{DATA}[1]") == 0
    assert all(median_ms(window, f"{FORWARD}[{micro}]") >= 4 for micro in range(2))


def test_a_number_of_micro_steps_that_varies_is_flagged_and_added_up(of: Callable[[str], Window]) -> None:
    window = of("uneven")
    assert window.manifest.faults == ("accumulation_mixed",)
    assert not window.manifest.accumulation.ordered
    assert BACKWARD in window.stages


def test_batches_made_without_a_loader_stay_in_the_residual(of: Callable[[str], Window]) -> None:
    window = of("generated")
    assert median_ms(window, DATA) == 0
    assert median_ms(window, OTHER) >= 10


def test_a_teacher_without_gradients_is_part_of_forward(of: Callable[[str], Window]) -> None:
    assert median_ms(of("frozen"), FORWARD) >= 8


def test_a_script_that_trains_nothing_gets_one_message(recorded: Path) -> None:
    assert not (recorded / "untrained").exists()
    lines = (recorded / "untrained.err").read_text().splitlines()
    assert lines == ["sfapp: nothing was recorded: the process's main thread took no step"]
