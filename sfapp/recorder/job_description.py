"""Describe this rank and its job for packets, from a recorder's options and the environment."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import sfapp
from sfapp.errors import RecorderError
from sfapp.model.manifest import Parallelism, RecorderInfo
from sfapp.model.periods import PERIODS_KEY, declared_periods
from sfapp.model.rank_table import RankIdentity
from sfapp.packets.compose import rfc3339
from sfapp.packets.job import JobInfo
from sfapp.packets.window_rows import check_name
from sfapp.recorder.identity import place_here, role_of, run_id_from_environment, world_size_here
from sfapp.recorder.options import RecorderOptions
from sfapp.recorder.rank_attributes import rank_attributes
from sfapp.recorder.rank_coordinates import coordinates_of
from sfapp.recorder.timing.timer_backend import times_in_c
from sfapp.recorder.transport.rank_group import distributed_rank
from sfapp.recorder.transport.transports import TRANSPORTS
from sfapp.terminal import printable


def describe_job(root: Path, options: RecorderOptions) -> tuple[RankIdentity, JobInfo]:
    """Return this rank's identity and the job's description.

    Raises:
        RecorderError: the run's name, the layout, an attribute or a period is invalid, or this rank's place
            is contradictory or unknown.
    """
    import torch

    job = options.job
    run_id = run_id_from_environment() if job.run_id is None else job.run_id
    check_name("run_id", run_id)
    rank = distributed_rank()
    identity = place_here().identity() if job.identity is None else job.identity
    identity = identity if job.roles is None else replace(identity, role=role_of(job.roles, identity.rank))
    if job.layout is not None:
        identity = replace(identity, coordinates=coordinates_of(job.layout))
    declared = identity.attributes if job.attributes is None else job.attributes
    identity = replace(identity, attributes=rank_attributes(declared))
    if rank is not None and rank != identity.rank:
        raise RecorderError(f"the identity says rank {identity.rank}, torch.distributed rank {rank}")
    world_size = world_size_here() if rank is None else 1  # Else it is asked when the ranks join.
    is_stated_here = rank is None and TRANSPORTS[options.gather.gather].needs_process_group
    if is_stated_here and identity.rank >= world_size:
        raise RecorderError(
            f"the identity says rank {identity.rank}, the environment {world_size} ranks: set WORLD_SIZE, or "
            "initialise torch.distributed before the recorder is created"
        )
    host, version = printable(identity.hostname), str(torch.__version__)
    recorder = RecorderInfo(
        version=sfapp.__version__,
        torch=version,
        backend="none",
        host=host,
        started_at=rfc3339(datetime.now(UTC)),
    )
    extra = {} if job.periods is None else {PERIODS_KEY: declared_periods(job.periods)}
    fraction, timer = options.side_channels.event_fraction, "C" if times_in_c() else "Python"
    info = JobInfo(
        root=root,
        run_id=run_id,
        world_size=world_size,
        wrapper=job.wrapper,
        parallelism=job.parallelism or Parallelism(),
        prefetch=job.prefetch,
        model_fit=job.model_fit,
        recorder=recorder,
        extra={"event_fraction": fraction, "no_events": "", "timed_in": timer, **extra},
    )
    return identity, info
