"""Measure what needs a CUDA device. ``make gpu``; five minutes.

    python -m benchmarks.gpu [--out docs/evidence] [--quick]

Writes ``gpu.md``. A failed section is reported on the page and the others continue; the exit code is then 1.
``--quick`` is a functional check only.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from benchmarks import gpu_sections, machine
from benchmarks.gpu_environment import missing
from benchmarks.gpu_sections import SectionFailed, Setup

Section = Callable[[Setup], list[str]]

SECTIONS: Mapping[str, Section] = {
    "Kernels of the accounting": gpu_sections.kernels,
    "Events and waits of a training loop": gpu_sections.waits,
    "NVML": gpu_sections.nvml,
    "Captures and their import": gpu_sections.capture,
    "Cost of the recorder": gpu_sections.overhead,
}

HEAD = """\
# On a GPU

Written by `python -m benchmarks.gpu --out docs/evidence` on {device} ({machine}).{quick}
"""

QUICK = " With `--quick`: this is a functional check; the numbers have no meaning."


def run(sections: Mapping[str, Section], setup: Setup) -> tuple[list[str], list[str]]:
    """Run all sections; return the lines of the page and the titles of the sections that failed."""
    lines: list[str] = []
    failed = []
    for title, section in sections.items():
        begin = time.monotonic()
        try:
            body = section(setup)
        except Exception as error:  # noqa: BLE001  # the other sections go on
            failed.append(title)
            body = _failure(error)
        lines += ["", f"## {title}", *body]
        print(*lines[-len(body) - 1 :], f"({time.monotonic() - begin:.0f} s)", sep="\n", flush=True)
        if setup.device.type == "cuda":
            torch.cuda.empty_cache()
    return lines, failed


def _failure(error: Exception) -> list[str]:
    text = str(error) if isinstance(error, SectionFailed) else "".join(traceback.format_exception(error)[-3:])
    return ["**Failed.**", "", "```text", text.rstrip(), "```"]


def page(lines: list[str], device: str, is_quick: bool) -> str:
    """Return docs/evidence/gpu.md."""
    head = HEAD.format(device=device, machine=machine.describe_machine(), quick=QUICK if is_quick else "")
    return "\n".join([head.rstrip(), *lines, ""])


def describe_device() -> str:
    """Return name and memory of the devices."""
    found = [torch.cuda.get_device_properties(place) for place in range(torch.cuda.device_count())]
    each = [f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB" for properties in found]
    return f"{'; '.join(each)}; CUDA {torch.version.cuda}"


def main() -> None:
    """Run all sections on the first device, and write the page if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if why := missing():
        sys.exit(f"benchmarks.gpu needs a CUDA device: {why}")
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(torch.device("cuda", 0), Path(folder), options.quick)
        lines, failed = run(SECTIONS, setup)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        text = page(lines, describe_device(), options.quick)
        (options.out / "gpu.md").write_text(text, encoding="utf-8")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
