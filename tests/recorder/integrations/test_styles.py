"""Every style of loop in real torchrun jobs: packets are whole, say what they are, name the slow rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sfapp.model import Accumulation
from sfapp.model.host_evidence import EVIDENCE_PREFIX
from tests.recorder.integrations.launching import (
    DATA,
    STEPS,
    is_whole,
    likely_cause_is_data_of_rank_1,
    only_window,
    run_job,
)

pytestmark = pytest.mark.torchrun

MODEL_BYTES = (64 * 64 + 64 + 64 * 8 + 8) * 4


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packets")
    run_job("loop_styles.py", root)
    return root


@pytest.mark.parametrize(
    ("style", "wrapper"),
    [
        ("plain", "single"),
        ("ddp", "ddp"),
        ("fsdp2", "fsdp2"),
        ("fsdp1", "fsdp1"),
        ("zero1", "zero1"),
        ("accumulating", "ddp"),
        ("nvrx", "ddp"),
        ("megatron", "ddp"),
    ],
)
def test_a_style_leaves_whole_packets_that_name_the_slow_rank(
    packets: Path, style: str, wrapper: str
) -> None:
    window = only_window(packets, style)
    is_whole(window)
    assert window.manifest.wrapper == wrapper
    likely_cause_is_data_of_rank_1(window)


def test_accumulation_separates_micro_steps_and_records_when_gradients_are_exchanged(packets: Path) -> None:
    window = only_window(packets, "accumulating")
    assert window.manifest.accumulation == Accumulation(factor=2, ordered=True, sync="last")
    waits = np.median(window.duration_SNR, axis=1)[:, 0]
    first, last = (window.stages.index(f"model.backward_cpu_wall[{micro}]") for micro in range(2))
    assert waits[last] > 10 * waits[first]  # rank 0 waits for rank 1 where gradients are exchanged


@pytest.mark.parametrize("style", ["fsdp1", "fsdp2"])
def test_a_sharded_models_shard_and_whole_are_recorded_with_the_stages(packets: Path, style: str) -> None:
    window = only_window(packets, style)
    shard = window.side["memory.parameter_shard_bytes"].value_NR
    whole = window.side["memory.parameter_full_bytes"].value_NR
    assert shard.sum(axis=1).tolist() == [MODEL_BYTES] * STEPS
    assert whole.tolist() == [[MODEL_BYTES] * 2] * STEPS


def test_memory_of_a_process_is_under_its_own_name_where_there_is_no_device(packets: Path) -> None:
    window = only_window(packets, "ddp")
    now = window.side["memory.process_rss_bytes"].value_NR
    peak = window.side["memory.process_peak_rss_bytes"].value_NR
    assert (now > 50e6).all()
    assert (np.diff(peak, axis=0) >= 0).all()
    assert "memory.allocated_bytes" not in window.side


def test_layers_are_timed_where_hooks_on_them_do_no_harm(packets: Path) -> None:
    for style in ("plain", "ddp"):
        side = only_window(packets, style).side
        layers = [f"layer.{place}.{way}_ms" for place in range(3) for way in ("forward", "backward")]
        assert all(side[layer].sampled_NR.all() and (side[layer].value_NR > 0).all() for layer in layers)
    assert not any(name.startswith("layer") for name in only_window(packets, "zero1").side)


@pytest.mark.parametrize("style", ["fsdp1", "fsdp2"])
def test_layers_of_a_sharded_model_are_refused_with_the_reason(packets: Path, style: str) -> None:
    refusal = (packets / f"{style}.rank1.refused.txt").read_text()
    assert refusal.startswith(f"layers are not timed under {style}: hooks")


def test_sections_that_are_no_stages_are_side_channels_of_their_names(packets: Path) -> None:
    window = only_window(packets, "nvrx")
    own = [name for name in window.side if not name.startswith(EVIDENCE_PREFIX)]
    assert {name for name in own if not name.startswith("loop_styles.py:")} == {"whole_model", "loss/log"}
    assert len(own) == 3  # and the one that has no name but its line
    forward = window.duration_SNR[window.stages.index("model.fwd_loss_cpu_wall")] / 1e6
    assert (window.side["whole_model"].value_NR < forward).all()


def test_stimer_distinguishes_fetching_from_work(packets: Path) -> None:
    window = only_window(packets, "megatron")
    data, forward = (window.stages.index(name) for name in (DATA, "model.fwd_loss_cpu_wall"))
    medians = np.median(window.duration_SNR, axis=1)[:, 1]
    assert medians[data] > 10 * medians[forward] > 0
