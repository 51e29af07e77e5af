"""What is refused before training, and what never reaches it."""

from __future__ import annotations

import copy
import importlib
import io
import logging
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from sfapp.errors import RecorderError
from sfapp.model import Accumulation
from sfapp.packets import read_window
from sfapp.recorder import Recorder, wrapper_of
from sfapp.recorder.integrations.megatron import StragglerDetector
from sfapp.recorder.integrations.nvrx import Detector
from sfapp.recorder.side_channels.memory import MemoryWatch
from tests.forked_programs import TORCH, run_forked

INTEGRATIONS = [("lightning", "lightning"), ("hf", "transformers")]


def network(layers: int = 2) -> torch.nn.Sequential:
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers)))


@pytest.fixture
def perf(tmp_path: Path) -> Recorder:
    recorder = Recorder(tmp_path, run_id="run", window_steps=2)
    yield recorder
    recorder.close()


@pytest.mark.parametrize(("integration", "library"), INTEGRATIONS)
def test_a_library_that_is_missing_is_named_with_the_extra_that_brings_it(
    integration: str, library: str
) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; import sfapp.recorder.integrations.{integration}"
    result = run_forked(TORCH, code)
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("sfapp.errors"))
    assert line.startswith("sfapp.errors.MissingExtraError: sfapp.recorder.integrations.")
    assert line.endswith(f"pip install 'sfapp[{integration}]'")


@pytest.mark.parametrize("option", ["stages", "windowsteps"])
def test_an_option_that_a_callback_does_not_have_is_refused_before_training(
    tmp_path: Path, option: str
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)
    from sfapp.recorder.integrations.hf import HuggingFaceRecorderCallback

    with pytest.raises(RecorderError, match=option):
        HuggingFaceRecorderCallback(tmp_path, **{option: ("a",)})


def test_a_recorder_that_cannot_be_made_costs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)
    from sfapp.recorder.integrations.hf import HuggingFaceRecorderCallback

    callback = HuggingFaceRecorderCallback(tmp_path, run_id="run")
    nothing_of_the_kind = SimpleNamespace()
    with caplog.at_level(logging.WARNING, logger="sfapp"):
        callback.on_train_begin(nothing_of_the_kind, nothing_of_the_kind, nothing_of_the_kind)
    callback.on_step_begin(nothing_of_the_kind, nothing_of_the_kind, nothing_of_the_kind)
    callback.on_train_end(nothing_of_the_kind, nothing_of_the_kind, nothing_of_the_kind)
    assert "training is not recorded" in caplog.text


def test_a_hook_that_fails_is_a_fault_in_the_packet_and_training_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)
    from sfapp.recorder.integrations.hf import AccelerateRecorder

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    minimal_accelerator = SimpleNamespace(gradient_accumulation_steps=1)
    with AccelerateRecorder(minimal_accelerator, model, optimizer, tmp_path, run_id="run") as recorded:
        for batch in recorded.batches([torch.ones(1, 4)] * 3):
            model(batch).sum().backward()
            optimizer.step()
    window = read_window(tmp_path)
    assert len(window.step_N) == 3
    assert window.manifest.faults == ("hook_failed",)
    assert "sync_gradients" in window.manifest.extra["faults_seen"]["hook_failed"]
    assert not model._forward_hooks


def test_what_a_signal_handler_raises_in_a_hook_reaches_training(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)
    from sfapp.recorder.integrations.hf import AccelerateRecorder

    def late(*arguments: object) -> None:
        raise TimeoutError("the job's time is up")

    class Accelerator:
        gradient_accumulation_steps = 1

        @property
        def sync_gradients(self) -> bool:
            signal.raise_signal(signal.SIGUSR1)
            return True

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = signal.signal(signal.SIGUSR1, late)
    try:
        with AccelerateRecorder(Accelerator(), model, optimizer, tmp_path, run_id="run") as recorded:
            (batch,) = recorded.batches([torch.ones(1, 4)])
            with pytest.raises(TimeoutError, match="time is up"):
                model(batch)
    finally:
        signal.signal(signal.SIGUSR1, before)


def saved_and_copied(model: torch.nn.Module) -> list[torch.nn.Module]:
    file = io.BytesIO()
    torch.save(model, file)
    assert b"sfapp" not in file.getvalue()
    file.seek(0)
    return [torch.load(file, weights_only=False), copy.deepcopy(model)]


def test_a_model_with_timed_layers_is_saved_and_copied_without_the_recorder(perf: Recorder) -> None:
    model = network()
    perf.time_layers(model)
    with perf.step():
        model(torch.ones(1, 4)).sum().backward()
        for copied in saved_and_copied(model):
            assert torch.equal(copied(torch.ones(1, 4)), model(torch.ones(1, 4)))


def test_a_model_of_accelerate_is_saved_and_copied_without_the_recorder(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)
    from sfapp.recorder.integrations.hf import AccelerateRecorder

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    accelerator = SimpleNamespace(gradient_accumulation_steps=1, sync_gradients=True)
    with AccelerateRecorder(accelerator, model, optimizer, tmp_path, run_id="run") as recorded:
        for batch in recorded.batches([torch.ones(1, 4)] * 3):
            model(batch).sum().backward()
            for copied in saved_and_copied(model):
                assert torch.equal(copied(batch), model(batch))
            optimizer.step()
    assert len(read_window(tmp_path).step_N) == 3


def test_a_section_that_is_to_be_an_unknown_stage_is_refused(perf: Recorder) -> None:
    with pytest.raises(RecorderError, match="no stages"):
        Detector(perf, stages={"fwd": "forward"})


def test_stimer_is_refused_where_micro_steps_are_kept_apart(tmp_path: Path) -> None:
    accumulation = Accumulation(factor=2, ordered=True)
    with (
        Recorder(tmp_path, run_id="run", accumulation=accumulation) as perf,
        pytest.raises(RecorderError, match="ordered=False"),
    ):
        StragglerDetector(perf)


@pytest.mark.parametrize("layers", [0, 13])
def test_more_layers_than_there_is_room_for_are_refused_and_none_as_well(perf: Recorder, layers: int) -> None:
    with pytest.raises(RecorderError, match=f"{layers} layers are too many: there are channels for 12"):
        perf.time_layers(network(layers))


def test_layers_of_a_compiled_model_are_refused(perf: Recorder) -> None:
    with pytest.raises(RecorderError, match="compiled"):
        perf.time_layers(torch.compile(network(), backend="eager"))


def test_layers_timed_again_are_timed_once_and_never_after_the_end(tmp_path: Path) -> None:
    model = network()
    with Recorder(tmp_path, run_id="run", window_steps=2) as perf:
        for _ in range(2):
            perf.time_layers(model)
            perf.watch_memory(model)
        assert [len(layer._forward_hooks) for layer in model] == [1, 1]
        with perf.step():
            model(torch.ones(1, 4)).sum().backward()
    assert [len(layer._forward_hooks) for layer in model] == [0, 0]
    side = read_window(tmp_path).side
    assert side["memory.parameter_full_bytes"].value_NR.item() == 2 * (4 * 4 + 4) * 4
    assert side["layer.1.backward_ms"].value_NR.item() > 0


def test_memory_is_watched_of_modules_alone(perf: Recorder) -> None:
    with pytest.raises(RecorderError, match="not a list"):
        perf.watch_memory([network()])


def test_what_is_no_module_has_another_wrapper() -> None:
    assert wrapper_of(lambda batch: batch) == "other"
    assert wrapper_of(network()) == "single"


def test_memory_costs_little(perf: Recorder) -> None:
    import time

    watch, side = MemoryWatch(network()), {}
    spent = []
    for step in range(2000):
        begin = time.perf_counter_ns()
        watch.sample(step, side)
        spent.append(time.perf_counter_ns() - begin)
    watch.close()
    assert sorted(spent)[len(spent) // 2] < 20_000  # 3 µs where the machine does nothing else


@pytest.mark.parametrize(
    ("module", "library", "name"),
    [
        ("hf", "transformers", "HuggingFaceRecorderCallback"),
        ("lightning", "lightning", "LightningRecorderCallback"),
    ],
)
def test_the_old_name_of_a_callback_still_works_and_warns(module: str, library: str, name: str) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed", exc_type=ImportError)
    integration = importlib.import_module(f"sfapp.recorder.integrations.{module}")
    with pytest.warns(DeprecationWarning, match=name):
        assert integration.RecorderCallback is getattr(integration, name)
    with pytest.raises(AttributeError, match="no attribute 'Callbacks'"):
        _ = integration.Callbacks
