"""The aggregator does not import torch, so that a thousand ranks take little memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ASSEMBLE = """
import sys, time
from pathlib import Path
import numpy as np
import sfapp.stream.aggregator
from sfapp.model.stages import DEFAULT_STAGES
from sfapp.stream.window_assembly import WindowAssembler
from sfapp.stream.messages import StreamHello, WindowClosed, WindowOpened

assembler = WindowAssembler(Path(sys.argv[1]), 30.0, 2.0, time.monotonic)
for rank in range(2):
    head = {"v": 2, "rank": rank, "incarnation": str(rank)}
    hello = StreamHello(**head, run_id="run", attempt="a", world_size=2)
    opened = WindowOpened(**head, sequence=0, window=0, broad=DEFAULT_STAGES[:-1], stages=DEFAULT_STAGES)
    rows = assembler.open(hello, opened, 0, hello.attempt)
    assembler.add(rows, np.ones((1, 2 + len(DEFAULT_STAGES)), dtype=np.int64))
    side = {"loss": np.ones(1).tobytes()}
    assembler.close(rows, WindowClosed(**head, sequence=2, window=0, steps=1, side=side), 3, hello)
assert assembler.size > 2 * 8 * (2 + len(DEFAULT_STAGES))
assert assembler.write_due(2**30) == 1
assert (assembler.counts.windows, assembler.failures, assembler.size) == (1, [], 0)
assert "torch" not in sys.modules, "torch takes a quarter of a gigabyte"
"""


def test_windows_become_packets_without_torch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASSEMBLE, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.rglob("*.parquet")] == ["00000000.parquet"]
