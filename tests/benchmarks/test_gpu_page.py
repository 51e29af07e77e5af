"""``make gpu`` as far as it goes without a GPU: what it says is missing, and its sections on the CPU."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_sections
from benchmarks.gpu import page, run
from benchmarks.gpu_environment import create, install, requirements
from benchmarks.gpu_sections import SectionFailed, Setup

ROOT = Path(__file__).resolve().parents[2]

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(torch.device("cpu"), tmp_path, is_quick=True)


@without_gpu
def test_without_a_device_the_command_reports_what_is_missing_and_writes_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("benchmarks.gpu needs a CUDA device: torch ")
    assert "is built without CUDA" in done.stderr or "finds no device" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_section_that_fails_is_on_the_page_with_its_error_and_the_others_go_on(setup: Setup) -> None:
    def refuses(setup: Setup) -> list[str]:
        raise SectionFailed("no driver")

    def breaks(setup: Setup) -> list[str]:
        raise RuntimeError("CUDA error: out of memory")

    sections = {"First": refuses, "Second": breaks, "Third": lambda setup: ["42 GB/s"]}
    lines, failed = run(sections, setup)
    shown = page(lines, "a device", is_quick=True)
    assert failed == ["First", "Second"]
    assert "no driver" in shown
    assert "RuntimeError: CUDA error: out of memory" in shown
    assert "## Third\n42 GB/s" in shown
    assert "the numbers have no meaning" in shown


def test_kernels_are_measured_against_a_copy_and_compared_with_numpy(setup: Setup) -> None:
    lines = gpu_sections.kernels(setup)
    rows = [line for line in lines if line.endswith("the same")]
    assert len(rows) == len(gpu_sections.KERNELS) + 1
    assert not any("DIFFERS" in line for line in lines)


@without_gpu
def test_nvml_gives_the_reason_when_there_is_nothing_to_sample(setup: Setup) -> None:
    with pytest.raises(SectionFailed, match=r"no NVIDIA driver|NVML|nvidia-ml-py|no GPU"):
        gpu_sections.nvml(setup)


def test_a_capture_and_an_imported_trace_are_reported(setup: Setup) -> None:
    shown = "\n".join(gpu_sections.capture(setup))
    assert "Three steps captured:" in shown
    assert "5 steps" in shown


def test_the_recorder_s_cost_is_measured_at_three_lengths_of_a_step(setup: Setup) -> None:
    lines = gpu_sections.overhead(setup)
    assert sum(line.startswith("sfapp") for line in lines) == 3


@pytest.mark.torchrun
def test_waits_of_two_ranks_on_one_device_are_reported(setup: Setup) -> None:
    shown = "\n".join(gpu_sections.waits(setup))
    assert "gloo, 2 ranks, 12 steps" in shown
    assert "model.backward_cpu_wall, host wait" in shown
    assert "forward, device event" in shown


@pytest.mark.torchrun
def test_a_job_that_fails_is_reported_with_what_it_printed(setup: Setup) -> None:
    with pytest.raises(SectionFailed, match=r"NCCL|nccl"):
        gpu_sections._training_rows(setup, "nccl", 1)


# ---- the environment ------------------------------------------------------------------------------------


@without_gpu
def test_make_gpu_reports_missing_parts_before_it_starts(tmp_path: Path) -> None:
    command = ["make", "gpu", f"GPU_PYTHON={sys.executable}", f"GPU_VENV={tmp_path / 'env'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "make gpu needs a CUDA device: torch " in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_environment_has_the_interpreter_s_torch_and_this_tree(tmp_path: Path) -> None:
    interpreter = create(tmp_path / "env")
    script = "import torch, sfapp; print(torch.__file__, sfapp.__file__, sep='\\n')"
    found = subprocess.run(
        [str(interpreter), "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert found.stdout.splitlines() == [str(torch.__file__), str(ROOT / "sfapp" / "__init__.py")]


def test_nothing_is_fetched_where_the_interpreter_has_it(tmp_path: Path) -> None:
    """Everything but the build tools is there, and the folder of wheels is empty."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    interpreter = create(tmp_path / "env")
    install(interpreter, wheels, [])
    listed = [path.name for path in (tmp_path / "env").rglob("site-packages/*") if path.is_dir()]
    assert [name for name in listed if name.startswith(("torch", "numpy", "nvidia"))] == []


def test_torch_is_never_among_what_is_installed() -> None:
    names = {re.split(r"[^a-z-]", each, maxsplit=1)[0] for each in requirements()}
    assert {"pytest", "hypothesis", "psutil", "nvidia-ml-py", "numpy", "click"} <= names
    assert "torch" not in names
