"""A rank of a real job over Gloo that leaves its Flight Recorder's dump: FOLDER LATE_RANK.

The late rank comes 30 ms late to the first collective of every step.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

recorder: Any = _distributed_c10d  # torch's stub lacks the functions that dump


def main(folder: Path, late: int) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for _ in range(6):
        if rank == late:
            time.sleep(0.03)
        dist.all_reduce(torch.ones(10))
        dist.all_reduce(torch.ones(20))
    (folder / f"dump_rank_{rank}").write_bytes(recorder._dump_fr_trace())
    (folder / "json").mkdir(exist_ok=True)
    (folder / "json" / f"dump_rank_{rank}.json").write_bytes(recorder._dump_fr_trace_json())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
