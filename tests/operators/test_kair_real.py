"""Real profiler traces of a job in which one rank sleeps before each exchange of embeddings: KAIR finds it.

They are not part of this repository: they are looked for beside it, or under ``SFAPP_TRACES``.
"""

from __future__ import annotations

import pytest

from sfapp.operators import examine
from tests.importers.trace_files import imported, real

SLEEPER = 2


@pytest.mark.parametrize(
    ("job", "slept_ms"), [("sst_long_a2a_optimizer_4", 20), ("sst_sleep_pl_dense_after_backward_2", 1_000)]
)
def test_the_rank_that_sleeps_before_an_exchange_is_named(job: str, slept_ms: int) -> None:
    trace = imported("kineto", real(f"kineto/torchrec_dlrm/{job}"))
    (window,) = trace.windows
    assert window.operators is not None
    found = examine(window.operators)

    assert found.similarity.ranks[found.similarity.order_R[0]] == SLEEPER
    first = found.blame.causes[0]
    assert first.rank == SLEEPER
    assert first.name.startswith("_AlltoAllSingle")
    assert len(first.steps) == 3
    assert first.delay_ns / 1e6 / 3 == pytest.approx(slept_ms, rel=0.03)
    large = [cause for cause in found.blame.causes if cause.worst_ns > 0.9e6 * slept_ms]
    assert {cause.rank for cause in large if cause.holds_up} == {SLEEPER}


def test_an_allocation_that_nothing_waited_for_comes_after_what_held_others_up() -> None:
    """Rank 3 spends 94 ms in cudaMalloc while it would have waited for rank 2 anyway."""
    trace = imported("kineto", real("kineto/torchrec_dlrm/sst_long_a2a_optimizer_4"))
    assert trace.windows[0].operators is not None
    causes = examine(trace.windows[0].operators).blame.causes

    costliest = max(causes, key=lambda cause: cause.worst_ns)
    assert (costliest.rank, costliest.name, costliest.holds_up) == (3, "cudaMalloc", False)
    assert causes[0].holds_up
