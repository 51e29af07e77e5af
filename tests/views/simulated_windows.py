"""Windows built by hand after real jobs, each named after its content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sfapp.accounting import Measures, judge, measure, reference_of
from sfapp.model import (
    DEFAULT_STAGES,
    Accumulation,
    Diagnosis,
    Frontier,
    Gates,
    Manifest,
    RankIdentity,
    RankTable,
    Reference,
    Window,
    expand_stages,
    stage_hash,
)
from sfapp.model.window import NOT_MEASURED
from tests.builders import reduced

MS = 1_000_000


def window(
    duration_SNR: np.ndarray,
    *,
    stages: tuple[str, ...] = DEFAULT_STAGES,
    number: int = 9,
    run: str = "gpt-small-ddp",
    hosts: tuple[str, ...] = (),
    per_node: int = 4,
    roles: tuple[str | None, ...] = (),
    first_step: int = 400,
    step_numbers: list[int] | None = None,
    layout: Mapping[str, Sequence[int]] | None = None,
    **manifest: Any,
) -> Window:
    """Return a window of these durations (ns), by default with four ranks per node."""
    duration = np.ascontiguousarray(duration_SNR.round().astype(np.int64))
    _, steps, ranks = duration.shape
    table = RankTable.of(
        [
            RankIdentity(
                rank=rank,
                local_rank=rank % per_node,
                node_rank=rank // per_node,
                hostname=hosts[rank] if hosts else f"node-{rank // per_node}",
                role=roles[rank] if roles else None,
            )
            for rank in range(ranks)
        ]
    )
    return Window(
        manifest=Manifest(
            run_id=run,
            window=number,
            stages=stages,
            stage_hash=stage_hash(stages),
            world_size=ranks,
            **manifest,
        ),
        duration_SNR=duration,
        wall_NR=duration.sum(axis=0),
        step_N=np.array(step_numbers or list(range(first_step, first_step + steps))),
        ranks=replace(table, layout={name: tuple(places) for name, places in (layout or {}).items()}),
    )


def ddp(
    ranks: int = 8,
    steps: int = 40,
    extra_SNR: dict[str, np.ndarray] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Window:
    """A data-parallel job whose ranks synchronise at the end of backward.

    ``extra_SNR`` holds, by short stage name, milliseconds [N, R] on top of the healthy durations.
    """
    random = np.random.default_rng(seed)
    healthy = {
        "data": 3.0,
        "forward": 20.5,
        "backward": 59.0,
        "callbacks": 1.2,
        "optimizer": 3.0,
        "other": 0.5,
    }
    own = {
        name: base * (1 + 0.03 * random.standard_normal((steps, ranks)).clip(-2, 2)) * MS
        for name, base in healthy.items()
    }
    for name, extra in (extra_SNR or {}).items():
        own[name] = own[name] + extra * MS
    planes = {name: np.zeros((steps, ranks)) for name in own}
    clock_R = np.zeros(ranks)
    for step in range(steps):
        for name in ("data", "forward", "backward"):
            planes[name][step] = own[name][step]
            clock_R = clock_R + own[name][step]
        waited_R = clock_R.max() - clock_R
        planes["backward"][step] += waited_R
        clock_R = clock_R + waited_R
        for name in ("callbacks", "optimizer", "other"):
            planes[name][step] = own[name][step]
            clock_R = clock_R + own[name][step]
    return window(np.stack(list(planes.values())), **settings)


def on(rank: int, ms: float, ranks: int = 8, steps: int = 40, every: int = 1) -> np.ndarray:
    """Milliseconds on one rank, every so many steps."""
    extra = np.zeros((steps, ranks))
    extra[every - 1 :: every, rank] = ms
    return extra


def slow_inside_backward(ms: float = 60) -> Window:
    """Rank 2 is slow inside backward, in which all wait for it; 5 ms of transfer follow. Waits are known, but
    for rank 7 in the third step."""
    random = np.random.default_rng(0)
    own_SNR = np.array([3.0, 20.5, 59.0, 1.2, 3.0, 0.5])[:, None, None] * MS
    own_SNR = own_SNR * (1 + 0.01 * random.standard_normal((6, 20, 8)).clip(-2, 2))
    own_SNR[2, :, 2] += ms * MS
    arrived_NR = own_SNR[:3].sum(axis=0)
    wait_NR = (arrived_NR.max(axis=1, keepdims=True) - arrived_NR + 5 * MS).round()
    own_SNR[2] = own_SNR[2].round() + wait_NR
    known_NR = wait_NR.astype(np.int64)
    known_NR[2, 7] = NOT_MEASURED
    return replace(window(own_SNR), waits={"model.backward_cpu_wall": known_NR})


def healthy(**settings: Any) -> Window:
    return ddp(seed=1, number=3, **settings)


def slow_callback() -> Window:
    """60 ms in rank 3's callbacks, after the last group wait of every step."""
    return ddp(extra_SNR={"callbacks": on(3, 60)})


def rotating_data_tail(ranks: int = 8, steps: int = 40) -> Window:
    """60 ms in the data loader of another rank each step."""
    random = np.random.default_rng(5)
    extra = np.zeros((steps, ranks))
    extra[np.arange(steps), random.integers(0, ranks, steps)] = 60
    return ddp(ranks, steps, {"data": extra})


def data_tail() -> Window:
    return ddp(extra_SNR={"data": on(2, 70)})


def periodic_callback() -> Window:
    return ddp(extra_SNR={"callbacks": on(5, 300, every=10)})


def one_off() -> Window:
    extra = np.zeros((40, 8))
    extra[17, 6] = 900
    return ddp(extra_SNR={"data": extra})


def slow_everywhere() -> Window:
    return ddp(extra_SNR={"forward": np.full((40, 8), 30.0)})


def tiny() -> Window:
    """The paper's motivating example: three ranks, three stages, one step, in seconds."""
    ranks = np.array([[6.0, 1.0, 1.1], [1.0, 1.0, 1.0], [1.2, 6.2, 6.0]]) * 1000 * MS
    return window(
        ranks[:, None, :], stages=("data.next_wait", "model.fwd_loss_cpu_wall", "model.backward_cpu_wall")
    )


def hand_overs() -> Window:
    """Each boundary led by another rank, in every one of 12 steps."""
    ranks = np.array([[4.0, 3.0, 2.0], [1.0, 3.0, 2.0], [1.0, 1.0, 4.5]]) * 100 * MS
    jitter = 1 + 0.01 * np.random.default_rng(3).random((3, 12, 3))
    return window(
        np.repeat(ranks[:, None, :], 12, axis=1) * jitter,
        stages=("data.next_wait", "model.fwd_loss_cpu_wall", "model.backward_cpu_wall"),
        layout={"dp": range(3)},
    )


def single_rank() -> Window:
    return ddp(ranks=1)


def below_floor() -> Window:
    return window(np.full((6, 2, 3), 1_000.0))


def accumulation(factor: int = 4) -> Window:
    """Micro-steps kept apart; rank 1 slow in the data of the third one."""
    stages = expand_stages(DEFAULT_STAGES, DEFAULT_STAGES[:3], factor)
    random = np.random.default_rng(2)
    base = np.array([3.0, 12, 22] * factor + [1.0, 3.0, 0.5])
    duration = base[:, None, None] * (1 + 0.02 * random.random((len(base), 20, 4))) * MS
    duration[6, :, 1] += 25 * MS
    duration[3 * factor - 1] += duration[: 3 * factor].sum(axis=0).max(axis=-1, keepdims=True) - duration[
        : 3 * factor
    ].sum(axis=0)
    return window(
        duration, stages=stages, accumulation=Accumulation(factor=factor, ordered=True, sync="last")
    )


def two_roles() -> Window:
    return ddp(roles=("dp0",) * 4 + ("dp1",) * 4)


def gaps() -> Window:
    """Step numbers with a hole: no carry-over."""
    numbers = [*range(400, 420), *range(430, 450)]
    return ddp(extra_SNR={"data": on(2, 70)}, step_numbers=numbers)


def hostile() -> Window:
    """Names that try to be markup, templates or TeX."""
    hosts = ("<script>alert(1)</script>", "<b>bold</b>", "%{x} $\\frac{1}{2}$ &amp;", "a" * 250)
    stages = ("data.next_wait", "<script>stage</script>.x", "model.%{y}<b>bold</b>", "step.other_cpu_wall")
    random = np.random.default_rng(4)
    duration = (20 + 5 * random.random((4, 12, 4))) * MS
    duration[1, :, 2] += 30 * MS
    layout = {"dp": (0, 0, 1, 1), "pp": (0, 1, 0, 1)}
    return window(
        duration, stages=stages, hosts=hosts, run="<img src=x onerror=alert(1)>", roles=hosts, layout=layout
    )


def many(ranks: int = 200, steps: int = 30) -> Window:
    layout = {"dp": [rank // 4 for rank in range(ranks)], "pp": [rank % 4 for rank in range(ranks)]}
    late = on(137 % ranks, 40, ranks, steps)
    return ddp(ranks, steps, {"data": late}, per_node=8, layout=layout)


def wide_nodes() -> Window:
    """Twelve ranks a node: more than one row of tiles."""
    layout = {"dp": [rank % 12 for rank in range(24)], "tp": [rank // 12 for rank in range(24)]}
    return ddp(ranks=24, extra_SNR={"data": on(14, 70, ranks=24)}, per_node=12, layout=layout)


def look(
    subject: Window,
    frontier: Frontier = "step",
    reference: Reference | None = None,
    gates: Gates | None = None,
) -> tuple[Measures, Diagnosis]:
    """Measure and judge."""
    measures = measure(subject)
    return measures, judge(measures, gates, frontier, reference)


def against_healthy(subject: Window, frontier: Frontier = "step") -> tuple[Measures, Diagnosis]:
    """Measure and judge against the healthy window of the same job."""
    reference = reference_of(measure(healthy()))
    return look(subject, frontier, reference)


def reduced_wide_nodes() -> Window:
    """24 ranks that left their frontier and the rows of six of them."""
    return reduced(wide_nodes())


def reduced_callback() -> Window:
    return reduced(slow_callback())


def reduced_inside_backward() -> Window:
    return reduced(slow_inside_backward())


ALL = {
    "tiny": tiny,
    "hand_overs": hand_overs,
    "slow_callback": slow_callback,
    "rotating_data_tail": rotating_data_tail,
    "periodic_callback": periodic_callback,
    "one_off": one_off,
    "slow_everywhere": slow_everywhere,
    "healthy": healthy,
    "many": many,
    "wide_nodes": wide_nodes,
    "single_rank": single_rank,
    "below_floor": below_floor,
    "accumulation": accumulation,
    "two_roles": two_roles,
    "gaps": gaps,
    "hostile": hostile,
    "reduced_wide_nodes": reduced_wide_nodes,
    "reduced_callback": reduced_callback,
    "slow_inside_backward": slow_inside_backward,
    "reduced_inside_backward": reduced_inside_backward,
}
"""Every kind of window that every view has to bear."""


def timeline_row(diagnosis: Diagnosis) -> dict[str, object]:
    """A window as ``Store.timeline`` gives it."""
    aim, culprit = diagnosis.aim, diagnosis.culprit
    return {
        "run_id": diagnosis.run_id,
        "window": diagnosis.window,
        "step_time_ns": diagnosis.step_time.mean_ns,
        "shares": diagnosis.carry_over_shares or diagnosis.shares,
        "label": diagnosis.label_names[-1],
        "severity": diagnosis.severity,
        "needs_attention": diagnosis.needs_attention,
        "aim_stage": aim.stage if aim else None,
        "aim_rank": aim.rank if aim else None,
        "aim_hostname": aim.hostname if aim else None,
        "culprit_kind": culprit.kind if culprit else None,
        "is_reference": False,
        "missing_ranks": len(diagnosis.missing_ranks),
        "first_missing_rank": next(iter(diagnosis.missing_ranks), None),
        "lacks_data": diagnosis.lacks_data,
    }


def timeline() -> list[dict[str, object]]:
    """30 windows of one run: healthy, a persistent callback, a rotating data tail, a slow optimizer."""
    kinds = [healthy] * 6 + [slow_callback] * 8 + [healthy] * 3 + [rotating_data_tail] * 6
    kinds += [periodic_callback] * 2 + [one_off] + [healthy] * 2 + [below_floor] + [healthy]
    made = {kind: timeline_row(against_healthy(kind(), "carry_over")[1]) for kind in set(kinds)}
    return [made[kind] | {"window": number} for number, kind in enumerate(kinds)]
