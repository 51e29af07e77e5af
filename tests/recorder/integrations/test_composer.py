"""The callback for Composer, called in the order in which its Trainer runs events.

Composer asks for older versions of PyTorch than the tests have. The loop below has the events of
``composer/trainer/trainer.py`` (0.32) that the callback uses; the clock moves only when the loop moves it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from sfapp.errors import MissingExtraError, RecorderError
from sfapp.model import BETWEEN, Window
from sfapp.packets import read_windows
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER, OTHER
from tests.recorder.clocked_recorder import Clock

MODULE = "sfapp.recorder.integrations.composer"


class Trainer:
    """Composer's training loop on one rank.

    Attributes:
        micro_batches: of each batch. evaluates: whether an evaluation follows each batch.
    """

    def __init__(self, clock: Clock, callback: Any, first_batch: int = 0) -> None:
        self.clock = clock
        self.micro_batches = 1
        self.evaluates = False
        self._callback = callback
        model = torch.nn.Linear(2, 2)
        optimizers = (torch.optim.SGD(model.parameters(), lr=0.1),)
        timestamp = SimpleNamespace(batch=first_batch)
        self.state = SimpleNamespace(model=model, optimizers=optimizers, timestamp=timestamp)

    def fit(self, batches: int) -> None:
        self.event("fit_start")
        for _ in range(batches):
            self.batch()
        self.event("fit_end")

    def batch(self) -> None:
        self.event("before_dataloader", 100)
        self.event("after_dataloader", 2)  # loggers
        for _ in range(self.micro_batches):
            self.event("before_forward", 200)
            self.event("before_backward", 300)
            self.event("after_backward", 50)
        self.event("batch_end", 20)
        if self.evaluates:
            self.event("eval_start", 900)
        self.event("batch_checkpoint", 400)

    def event(self, name: str, then: int = 0) -> None:
        """Run an event, after which time passes until the next."""
        getattr(self._callback, name)(self.state, None)
        self.clock.tick(then)


@pytest.fixture
def composer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Composer's interface: the base class of callbacks."""
    module: Any = ModuleType("composer")
    module.Callback = type("Callback", (), {})
    monkeypatch.setitem(sys.modules, "composer", module)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield
    sys.modules.pop(MODULE, None)


@pytest.fixture
def trainer_of(composer: None, tmp_path: Path) -> Callable[..., Trainer]:
    from sfapp.recorder.integrations.composer import ComposerRecorderCallback

    clock = Clock()
    options = {"run_id": "run", "clock": clock, "evidence": False, "window_steps": 3}
    return lambda **more: Trainer(clock, ComposerRecorderCallback(tmp_path, **options), **more)


def recorded(root: Path) -> list[Window]:
    return [found.window for found in read_windows([root]).windows]


def stages_of(window: Window, step: int) -> dict[str, int]:
    return dict(zip(window.stages, window.duration_SNR[:, step, 0].tolist(), strict=True))


def test_every_part_of_a_batch_is_in_a_stage(tmp_path: Path, trainer_of: Callable[..., Trainer]) -> None:
    trainer_of().fit(3)
    (window,) = recorded(tmp_path)
    assert window.manifest.faults == ()
    assert stages_of(window, 1) == {
        BETWEEN: 400, DATA: 100, FORWARD: 200, BACKWARD: 300, OPTIMIZER: 50, CALLBACKS: 20, OTHER: 2,
    }  # fmt: skip


def test_an_evaluation_is_between_steps(tmp_path: Path, trainer_of: Callable[..., Trainer]) -> None:
    trainer = trainer_of()
    trainer.evaluates = True
    trainer.fit(3)
    (window,) = recorded(tmp_path)
    assert stages_of(window, 1)[BETWEEN] == 900 + 400
    assert stages_of(window, 1)[CALLBACKS] == 20


def test_micro_batches_are_added_up_and_counted(tmp_path: Path, trainer_of: Callable[..., Trainer]) -> None:
    trainer = trainer_of()
    trainer.micro_batches = 4
    trainer.fit(4)
    first, second = recorded(tmp_path)
    # The first batch shows how many there are.
    assert [len(first.step_N), len(second.step_N)] == [1, 3]
    assert second.manifest.accumulation.factor == 4
    assert stages_of(second, 0)[FORWARD] == 4 * 200
    assert stages_of(second, 0)[OPTIMIZER] == 4 * 50


def test_batches_are_numbered_as_composer_does_and_one_that_it_skips_is_no_step(
    tmp_path: Path, trainer_of: Callable[..., Trainer]
) -> None:
    trainer = trainer_of(first_batch=70)
    trainer.event("fit_start")
    trainer.event("before_dataloader", 100)  # It spins the loader to where training was.
    trainer.batch()
    trainer.batch()
    trainer.event("close")
    (window,) = recorded(tmp_path)
    assert window.step_N.tolist() == [70, 71]


def test_an_option_that_does_not_exist_is_refused_before_training(composer: None, tmp_path: Path) -> None:
    from sfapp.recorder.integrations.composer import ComposerRecorderCallback

    with pytest.raises(RecorderError, match="windowsteps"):
        ComposerRecorderCallback(tmp_path, windowsteps=3)


def test_without_composer_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "composer", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(MissingExtraError, match="pip install mosaicml"):
        __import__(MODULE)
