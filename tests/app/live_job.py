"""What an aggregator leaves next to the packets of a job that runs: for tests that need none at work."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sfapp.metrics import MetricsLog
from sfapp.model.samples import (
    AggregatorSample,
    AnySample,
    GpuSample,
    LinkSample,
    NodeSample,
    PaceSample,
    ProcessSample,
    StandstillSample,
)
from sfapp.model.stages import BACKWARD, DATA
from sfapp.model.standstill import RankGroup, RollCall

LIVE = "live-job"
SECOND = 10**9
MS = 10**6


class LiveJob:
    """Two nodes of four ranks, 10 steps of 100 ms a second; rank 6 takes 130 ms. Node 1 has a GPU."""

    def __init__(self, root: Path, run: str = LIVE, host: str = "node", nodes: int = 2) -> None:
        self._log = MetricsLog(root, run)
        self._host = host
        self._nodes = nodes
        self.step = 0

    def go(
        self,
        seconds: int = 30,
        *,
        until: float | None = None,
        silent: Mapping[int, float] | None = None,
        left: Collection[int] = (),
    ) -> None:
        """Write the samples of the seconds before a moment, by default now.

        Args:
            silent: by rank, seconds since its last message. left: ranks that disconnected.
        """
        end_ns = time.time_ns() if until is None else int(until * SECOND)
        samples: list[AnySample] = []
        for second in range(seconds):
            self.step += 10
            at_ns = end_ns - (seconds - 1 - second) * SECOND
            samples += self._second(at_ns, silent or {}, left)
        self._log.add(samples)

    def _second(self, at_ns: int, silent: Mapping[int, float], left: Collection[int]) -> list[AnySample]:
        found: list[AnySample] = [
            AggregatorSample(
                at_ns=at_ns, node_rank=0, messages=self.step, malformed=2, last_fault="10.0.0.9: no map"
            )
        ]
        for node in range(self._nodes):
            found.append(
                NodeSample(
                    at_ns=at_ns,
                    node_rank=node,
                    hostname=f"{self._host}-{node}",
                    cpu_percent=40.0 + node,
                    load_1min=3.5,
                    memory_used_bytes=64 * 10**9,
                    memory_total_bytes=128 * 10**9,
                    disk_read_bytes_per_s=2e6,
                    disk_written_bytes_per_s=1e6,
                    network_received_bytes_per_s=1.2e9,
                    network_sent_bytes_per_s=1.1e9,
                    no_gpu_because=None if node else "there is no NVIDIA driver on this node",
                )
            )
            if node:
                found.append(
                    GpuSample(at_ns=at_ns, node_rank=node, gpu=0, utilisation_percent=97.0, power_watts=512.0)
                )
        for rank in range(4 * self._nodes):
            place: dict[str, Any] = {"at_ns": at_ns, "node_rank": rank // 4, "rank": rank}
            wall_ns = (130 if rank == 6 else 100) * MS + (self.step // 10 % 7) * MS
            found.append(
                LinkSample(
                    **place,
                    local_rank=rank % 4,
                    hostname=f"{self._host}-{rank // 4}",
                    world_size=4 * self._nodes,
                    silent_s=(silent.get(rank, 0.2)),
                    has_left=rank in left,
                    lost_steps=3 if rank == 2 else 0,
                )
            )
            if rank not in silent and rank not in left:
                pace = PaceSample(
                    **place, step=self.step, steps=10, wall_mean_ns=float(wall_ns), wall_max_ns=wall_ns
                )
                found += [pace, ProcessSample(**place, cpu_percent=101.0, rss_bytes=3 * 10**9)]
        return found


STANDING = RollCall(
    kind="rank",
    certainty="likely",
    step=301,
    idle_s=184.0,
    limit_s=30.0,
    world_size=8,
    groups=(
        RankGroup(spans=((3, 3),), state="stage", holds=True, step=301, stage=DATA, still_s=184.0),
        RankGroup(spans=((0, 2), (4, 7)), state="stage", step=301, stage=BACKWARD, still_s=184.0),
    ),
)
SENTENCE = (
    "Step 301: 7 of 8 ranks wait in backward since 184 s; rank 3 is in data since 184 s: it holds the job"
)


def stand_still(root: Path, began: float, *, has_ended: bool = False, at: float | None = None) -> None:
    """Write what an aggregator writes of a standstill, by default at this moment."""
    sample = StandstillSample(
        at_ns=int((time.time() if at is None else at) * 1e9),
        node_rank=0,
        step=301,
        began_ns=int(began * 1e9),
        limit_s=30.0,
        has_ended=has_ended,
        roll_call=msgspec.json.encode(STANDING).decode(),
    )
    MetricsLog(root, LIVE).add([sample])
