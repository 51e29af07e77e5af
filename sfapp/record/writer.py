"""From closed windows to packets, on a thread of its own, so that training never waits for it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sfapp.model.manifest import Manifest, Overhead, Parallelism, Prefetch, RecorderInfo, Wrapper
from sfapp.model.stages import stage_hash
from sfapp.model.window import RankIdentity, RankTable, Window
from sfapp.record.buffers import WindowBuffer
from sfapp.record.gather import Gathered, GatherFailed, GatherRefused, Rows, TelemetryGroup

NOT_DISTRIBUTED = "torch.distributed was not initialised when the recorder was made"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is the same for all windows of a run on this rank."""

    root: Path
    run_id: str
    identity: RankIdentity
    world_size: int
    wrapper: Wrapper
    parallelism: Parallelism
    prefetch: Prefetch
    model_fit: bool
    recorder: RecorderInfo


class Writer:
    """Owns the telemetry group, the queue of closed windows and the thread that empties it."""

    def __init__(self, job: Job, group: TelemetryGroup | None, pending: int, why_alone: str | None) -> None:
        self._job = job
        self._group = group
        self._why_alone = why_alone
        self._identities: Sequence[RankIdentity] = group.identities if group else [job.identity]
        self._closed: queue.Queue[WindowBuffer | None] = queue.Queue(maxsize=pending)
        self.written: list[Path] = []
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run, name="sfapp-recorder", daemon=True)
        self._thread.start()

    def submit(self, buffer: WindowBuffer, wait: float = 0.0) -> bool:
        """Hand a closed window over; False, and nothing kept, if too many still wait after ``wait`` s."""
        try:
            self._closed.put(buffer, block=wait > 0, timeout=wait or None)
        except queue.Full:
            return False
        return True

    def close(self, timeout: float) -> bool:
        """Write what is waiting and stop; False if that took longer than ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        try:
            self._closed.put(None, timeout=timeout)
        except queue.Full:
            return False
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (buffer := self._closed.get()) is not None:
            try:
                self._ship(buffer)
            except Exception as error:  # fail-open: a window is lost, the job is not
                self.failures.append(f"window {buffer.number}: {type(error).__name__}: {error}")

    def _ship(self, buffer: WindowBuffer) -> None:
        begin = time.perf_counter_ns()
        if self._group is None:
            if buffer.filled:
                alone = self._job.world_size > 1
                self._write_own(buffer, self._why_alone if alone else None, part=alone)
            return
        try:
            gathered = self._group.gather(buffer)
            written = gathered is None or self._write_all(buffer, gathered, time.perf_counter_ns() - begin)
            why = None if self._group.confirm(written) else "rank 0 could not write the window"
        except GatherRefused as refusal:
            why = str(refusal)
        except GatherFailed as failure:
            # After a failed collective, Gloo's connections are in no known state: parts from here on.
            why = self._why_alone = str(failure)
            self._group = None
        if why is not None and buffer.filled:
            self._write_own(buffer, why, part=True)

    def _write_all(self, buffer: WindowBuffer, gathered: Gathered, gather_ns: int) -> bool:
        """Rank 0 writes the whole window; False if it could not, so that all ranks write their parts."""
        for fault in gathered.faults:
            buffer.faults.setdefault(fault)
        try:
            self._write(buffer, gathered.rows, self._identities, None, gather_ns)
        except Exception as error:  # fail-open, and the others must hear of it or they wait in vain
            self.failures.append(f"window {buffer.number}: {error}")
            return False
        return True

    def _write_own(self, buffer: WindowBuffer, error: str | None, part: bool) -> None:
        rank = self._job.identity.rank if part else None
        self._write(buffer, (buffer.rows(),), [self._job.identity], error, 0, rank)

    def _write(
        self,
        buffer: WindowBuffer,
        rows: Sequence[Rows],
        identities: Sequence[RankIdentity],
        error: str | None,
        gather_ns: int,
        part_rank: int | None = None,
    ) -> None:
        from sfapp.packets import packet_path, write_packet

        window = self._window(buffer, rows, identities, error, gather_ns, part_rank is not None)
        path = packet_path(self._job.root, self._job.run_id, buffer.number, part_rank)
        write_packet(window, path)
        self.written.append(path)

    def _window(
        self,
        buffer: WindowBuffer,
        rows: Sequence[Rows],
        identities: Sequence[RankIdentity],
        error: str | None,
        gather_ns: int,
        is_part: bool,
    ) -> Window:
        import torch

        job = self._job
        order = sorted(range(len(identities)), key=lambda index: identities[index].rank)
        cell_NCR = np.stack([rows[index] for index in order], axis=-1)
        manifest = Manifest(
            run_id=job.run_id,
            window=buffer.number,
            stages=buffer.schema.stages,
            stage_hash=stage_hash(buffer.schema.stages),
            world_size=job.world_size,
            # A part lacks all ranks but one: not listed, or the parts of a large job grow as its square.
            missing_ranks=() if is_part else _absent(job.world_size, identities),
            gather_ok=error is None,
            gather_error=error,
            started_at=_rfc3339(buffer.started_at),
            ended_at=_rfc3339(buffer.ended_at),
            closed_by=buffer.closed_by,
            accumulation=buffer.schema.accumulation,
            parallelism=job.parallelism,
            wrapper=job.wrapper,
            model_fit=job.model_fit,
            prefetch=job.prefetch,
            recorder=job.recorder,
            overhead=Overhead(gather_ns=gather_ns, record_ns=buffer.record_ns, train_ns=buffer.train_ns),
            faults=tuple(buffer.faults),
        )
        return Window(
            manifest=manifest,
            duration_SNR=torch.from_numpy(np.ascontiguousarray(cell_NCR[:, 2:].transpose(1, 0, 2))),
            wall_NR=torch.from_numpy(np.ascontiguousarray(cell_NCR[:, 1])),
            step_N=torch.from_numpy(np.ascontiguousarray(cell_NCR[:, 0, 0])),
            ranks=RankTable.of(identities),
        )


def _absent(world_size: int, identities: Sequence[RankIdentity]) -> tuple[int, ...]:
    present = {identity.rank for identity in identities}
    return tuple(rank for rank in range(world_size) if rank not in present)


def _rfc3339(moment: object) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"
