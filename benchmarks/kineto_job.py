"""Generate a job in the format of PyTorch's profiler, with a known late rank and delay.

Each rank loads data, computes forward and backward, joins bucketed all-reduces that end on all ranks at once,
and steps its optimizer. Times are µs on one clock; kernels have today's names.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BASE_NS = 1_790_000_000_000_000_000
MAIN, AUTOGRAD, COMPUTE, COMMUNICATION = 0, 1, 7, 13


@dataclass(frozen=True, slots=True)
class Shape:
    """Parameters of the job.

    Attributes:
        ranks, steps: their numbers.
        late_rank, late_us: the rank that waits longer for data, and the additional time.
        data_us, forward_us, backward_us, optimizer_us: durations in a healthy step.
        buckets: number of all-reduces in each backward.
        layers: number of operators, each with a kernel, in forward and in backward.
        padding: additional characters of text in each operator, as in call stacks.
    """

    ranks: int = 8
    steps: int = 12
    late_rank: int = 5
    late_us: float = 60_000.0
    data_us: float = 5_000.0
    forward_us: float = 30_000.0
    backward_us: float = 40_000.0
    optimizer_us: float = 4_000.0
    buckets: int = 4
    layers: int = 12
    padding: int = 0


def write_job(folder: Path, shape: Shape, *, packed: bool = True) -> list[Path]:
    """Write one file per rank, named like those of the profiler's handler; return them by rank."""
    folder.mkdir(parents=True, exist_ok=True)
    writers = [_Rank(rank, shape) for rank in range(shape.ranks)]
    now = [1_000.0 + 40.0 * rank for rank in range(shape.ranks)]
    for step in range(shape.steps):
        now = _step(writers, now, step, shape)
    return [writer.save(folder, packed) for writer in writers]


def _step(writers: Sequence[_Rank], now: Sequence[float], step: int, shape: Shape) -> list[float]:
    """Add one step of all ranks; return the end of each."""
    begun = list(now)
    ready = []
    for rank, writer in enumerate(writers):
        data = shape.data_us + (shape.late_us if rank == shape.late_rank else 0.0)
        ready.append(writer.forward(begun[rank], data, step))
    bucket_us = shape.backward_us / shape.buckets
    joined = 0.0
    for bucket in range(shape.buckets):
        arrivals = [at + bucket_us * (bucket + 1) for at in ready]
        joined = max(joined, max(arrivals)) + 1_500.0
        for writer, at, arrival in zip(writers, ready, arrivals, strict=True):
            writer.bucket(at + bucket_us * bucket, arrival, joined, bucket, step)
    return [writer.finish(begun[rank], joined, step) for rank, writer in enumerate(writers)]


class _Rank:
    def __init__(self, rank: int, shape: Shape) -> None:
        self._rank, self._shape = rank, shape
        self._pid = 40_000 + rank
        self._events: list[dict[str, Any]] = []
        self._correlation = 0
        self._sequence = 0

    def forward(self, at: float, data_us: float, step: int) -> float:
        """Add data and forward; return the begin of backward."""
        shape = self._shape
        self._host(
            "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
            at + 5,
            data_us,
            "user_annotation",
        )
        begin = at + 10 + data_us
        self._host("DistributedDataParallel.forward", begin, shape.forward_us, "user_annotation")
        each = shape.forward_us / shape.layers
        for layer in range(shape.layers):
            self._operator("aten::addmm", begin + each * layer, each * 0.9, layer, step)
        return begin + shape.forward_us + 50

    def bucket(self, at: float, arrival: float, joined: float, bucket: int, step: int) -> None:
        """Add the nodes of one bucket, and its all-reduce from the rank's arrival until all have joined."""
        layers = max(self._shape.layers // self._shape.buckets, 1)
        each = (arrival - at) / layers
        for layer in range(layers):
            begin = at + each * layer
            name = "autograd::engine::evaluate_function: AddmmBackward0"
            self._host(name, begin, each * 0.95, "cpu_op", AUTOGRAD, {"Sequence number": layer})
            self._operator("aten::mm", begin + 1, each * 0.8, layer, step, AUTOGRAD)
        self._launch(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            arrival - 20,
            arrival,
            joined - arrival,
            AUTOGRAD,
            COMMUNICATION,
            {
                "Collective name": "allreduce",
                "In msg nelems": 6_553_600,
                "Group size": self._shape.ranks,
                "dtype": "Float",
                "Process Group Name": "0",
                "Process Group Description": "default_pg",
            },
        )

    def finish(self, begun: float, joined: float, step: int) -> float:
        """Add the optimizer and the enclosing step; return its end."""
        begin = joined + 20 + self._rank
        self._host("Optimizer.step#AdamW.step", begin, self._shape.optimizer_us, "user_annotation")
        self._host(
            "Optimizer.zero_grad#AdamW.zero_grad",
            begin + self._shape.optimizer_us + 5,
            100,
            "user_annotation",
        )
        end = begin + self._shape.optimizer_us + 120
        self._host(f"ProfilerStep#{step + 5}", begun, end - begun, "user_annotation")
        return end + 5

    def _operator(self, name: str, at: float, us: float, layer: int, step: int, thread: int = MAIN) -> None:
        arguments = {
            "External id": self._correlation,
            "Record function id": 0,
            "Sequence number": step * 1000 + layer,
            "Fwd thread id": 0,
            "Input Dims": [[4096], [8192, 1024], [1024, 4096], [], []],
            "Input type": ["float", "float", "float", "Scalar", "Scalar"],
            "Ev Idx": len(self._events),
            "Call stack": "/" * self._shape.padding,
        }
        self._host(name, at, us, "cpu_op", thread, arguments)
        kernel = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>"
        self._launch(kernel, at + us * 0.3, at + us * 0.4, us * 0.9, thread, COMPUTE, {})

    def _launch(
        self, kernel: str, called: float, at: float, us: float, thread: int, stream: int, more: dict[str, Any]
    ) -> None:
        self._correlation += 1
        tie = {"External id": self._correlation, "correlation": self._correlation}
        self._host("cudaLaunchKernel", called, 4.5, "cuda_runtime", thread, {"cbid": 211, **tie})
        shape = {
            "grid": [128, 1, 1],
            "block": [640, 1, 1],
            "registers per thread": 96,
            "shared memory": 47056,
        }
        self._add(
            kernel, at, us, "kernel", 0, stream, {"device": 0, "stream": stream, **tie, **shape, **more}
        )
        for phase, pid, tid, when in (("s", self._pid, self._pid + thread, called), ("f", 0, stream, at)):
            flow = {"ph": phase, "id": self._correlation, "pid": pid, "tid": tid, "ts": round(when, 3)}
            self._events.append(flow | {"cat": "ac2g", "name": "ac2g", "bp": "e"})

    def _host(
        self,
        name: str,
        at: float,
        us: float,
        cat: str,
        thread: int = MAIN,
        args: dict[str, Any] | None = None,
    ) -> None:
        self._add(name, at, us, cat, self._pid, self._pid + thread, args or {"External id": 0, "Ev Idx": 0})

    def _add(
        self, name: str, at: float, us: float, cat: str, pid: int, tid: int, args: dict[str, Any]
    ) -> None:
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
        self._events.append(event | {"ts": round(at, 3), "dur": round(us, 3), "args": args})

    def save(self, folder: Path, packed: bool) -> Path:
        """Write the file in the profiler's format: the events inside the header."""
        path = folder / f"host{self._rank // 4}_{self._pid}.{BASE_NS + self._rank}.pt.trace.json"
        path = path.with_name(path.name + ".gz") if packed else path
        with gzip.open(path, "wt", compresslevel=1) if packed else path.open("w") as file:
            file.writelines(self._text())
        return path

    def _text(self) -> Iterator[str]:
        info = {"backend": "nccl", "rank": self._rank, "world_size": self._shape.ranks}
        yield f'{{\n  "schemaVersion": 1,\n  "distributedInfo": {json.dumps(info)},\n  "traceEvents": [\n'
        for place, event in enumerate(self._events):
            yield ("  " if place == 0 else ",\n  ") + json.dumps(event)
        yield f'\n  ],\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {BASE_NS}\n}}\n'
