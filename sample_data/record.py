"""Record sample_data/packets again: three real torchrun jobs, and one packet damaged on purpose.

    python sample_data/record.py [--out FOLDER] [--steps 40] [--windows N] [--ranks 8]

Takes about three minutes on two cores that have nothing else to do. The numbers differ a little every time;
what they show does not, and tests/sample_data asserts it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RUNS = ("gpt-small-ddp", "gpt-small-rank-lost", "moe-two-roles")


def torchrun(run: str, out: Path, arguments: argparse.Namespace) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={arguments.ranks}", str(HERE / "job.py")]
    command += ["--schedule", run, "--out", str(out), "--steps", str(arguments.steps)]
    if arguments.windows:
        command += ["--windows", str(arguments.windows)]
    print(f"recording {run} on {arguments.ranks} processes …", flush=True)
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def damage(packet: Path, target: Path) -> None:
    """A copy that ends in the middle, as a full disk or a torn transfer leaves it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(packet.read_bytes()[: packet.stat().st_size // 2])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=HERE / "packets")
    parser.add_argument("--run", choices=RUNS, default=None, help="only this run")
    parser.add_argument("--steps", type=int, default=40, help="steps a window")
    parser.add_argument(
        "--windows", type=int, default=None, help="only the first so many windows of each run"
    )
    parser.add_argument("--ranks", type=int, default=8)
    arguments = parser.parse_args()
    for run in (arguments.run,) if arguments.run else RUNS:
        shutil.rmtree(arguments.out / run, ignore_errors=True)
        torchrun(run, arguments.out, arguments)
    whole = sorted((arguments.out / RUNS[0]).glob("*.parquet"))
    if whole:
        damage(whole[-1], arguments.out / "broken" / whole[-1].name)
    size = sum(path.stat().st_size for path in arguments.out.rglob("*.parquet"))
    print(f"{size / 1e6:.2f} MB in {arguments.out}")


if __name__ == "__main__":
    main()
