"""Scripts that train with DeepSpeed's engine are recorded without changes, with what the engine adds to
PyTorch's backward pass and optimizer steps."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfapp
from sfapp.model import Window
from sfapp.packets import read_window
from sfapp.recorder.auto import torch_hooks
from sfapp.recorder.auto.import_hooks import ImportHook
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER
from tests.recorder.auto.test_run_command import SCRIPTS, run, windows
from tests.recorder.auto.test_session import Loop

MS = 1_000_000
HAS_DEEPSPEED = find_spec("deepspeed") is not None

ENGINE = '''
class DeepSpeedEngine:
    """DeepSpeed's engine as its hooks see it: what follows PyTorch's own calls, and overflowed steps."""

    def __init__(self, loop):
        self.loop, self.overflows = loop, False

    def backward(self, loss):
        self.loop.spend("backward", 300)
        self.loop.clock.now += 40  # exchanges the gradients
        return loss

    def _take_model_step(self, options):
        if not self.overflows:
            self.loop.update()
        self.loop.clock.now += 20  # gathers the parameters
'''


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    return Loop(tmp_path / "packets")


@pytest.fixture
def engine(tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Engine of a package that is imported after the hooks were installed."""
    package = tmp_path / "deepspeed" / "runtime"
    package.mkdir(parents=True)
    for name, text in {"../__init__": "", "__init__": "", "engine": ENGINE}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("deepspeed", "deepspeed.runtime", "deepspeed.runtime.engine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    torch_hooks._hook_deepspeed(loop.session, torch_hooks._ForwardHook(loop.session))
    from deepspeed.runtime.engine import DeepSpeedEngine

    assert not any(isinstance(finder, ImportHook) for finder in sys.meta_path)
    return DeepSpeedEngine(loop)


def train(loop: Loop, engine: Any, steps: int) -> None:
    for _ in range(steps):
        loop.spend("data", 100, 1)
        loop.spend("forward", 200, 1)
        assert engine.backward("loss") == "loss"
        engine._take_model_step({})


def stages_of(window: Window, step: int) -> dict[str, int]:
    return dict(zip(window.stages, window.duration_SNR[:, step, 0].tolist(), strict=True))


def test_exchange_and_gather_count_for_backward_and_optimizer(
    tmp_path: Path, loop: Loop, engine: Any
) -> None:
    train(loop, engine, 5)
    loop.session.close()
    spent = stages_of(read_window(tmp_path / "packets"), 4)
    assert [spent[name] for name in (CALLBACKS, DATA, FORWARD)] == [0, 100, 200]
    assert spent[BACKWARD] == 300 + 40
    assert spent[OPTIMIZER] == 50 + 20


def test_a_step_with_overflowed_gradients_is_a_step(tmp_path: Path, loop: Loop, engine: Any) -> None:
    train(loop, engine, 4)
    engine.overflows = True
    train(loop, engine, 1)
    loop.session.close()
    window = read_window(tmp_path / "packets")
    assert window.step_N.tolist() == [0, 1, 2, 3, 4]
    assert window.manifest.accumulation.factor == 1
    assert stages_of(window, 4)[OPTIMIZER] == 20


@pytest.fixture(scope="module")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of what DeepSpeed compiles; a lock that a killed job left in the usual one is waited for."""
    return tmp_path_factory.mktemp("extensions")


@pytest.mark.torchrun
@pytest.mark.skipif(not HAS_DEEPSPEED, reason="needs deepspeed, which no extra of sfapp installs")
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_every_stage_of_zero_is_recorded(tmp_path: Path, extensions: Path, zero: int) -> None:
    run(
        *(tmp_path, "--window-steps=8", "--nproc-per-node=2", SCRIPTS / "deepspeed_loop.py", zero),
        environment={"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(extensions)},
    )
    (window,) = windows(tmp_path)
    accumulation = window.manifest.accumulation
    assert (window.manifest.gather_ok, window.manifest.faults) == (True, ())
    assert (accumulation.factor, accumulation.ordered) == (2, True)
    assert len(window.step_N) == 8
    assert int(window.duration_SNR[-1].sum()) < 0.05 * int(window.wall_NR.sum())
    waited = window.duration_SNR[window.stages.index(f"{DATA}[0]")] / MS
    assert np.median(waited[:, 1]) >= 100 > 50 > np.median(waited[:, 0])
    # Rank 0 waits where gradients are exchanged: ZeRO 2 and 3 do so in every micro-step.
    exchange = f"{BACKWARD}[{0 if zero >= 2 else 1}]"
    assert np.median(window.waits[exchange][:, 0]) > 80 * MS
    aim = sfapp.diagnose(window).aim
    assert aim is not None
    assert (aim.stage, aim.rank) == (DATA, 1)
