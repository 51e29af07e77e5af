"""A bad host that no single job shows is named first; without one, none is named."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from sfapp.accounting.fleet_hosts import NamedHost, RunHosts, at_least, fleet_hosts
from sfapp.model.fleet import FleetHost

DATA = "data.next_wait"
POOL = [f"node-{number}" for number in range(200)]
BAD = "node-17"


def jobs(seed: int, bad_jobs: int) -> list[RunHosts]:
    """400 jobs on 8 hosts each of which a third have a late rank somewhere, and the bad host in some."""
    draw = np.random.default_rng(seed)
    found = []
    for number in range(400):
        hosts = [*draw.choice(POOL, 8, replace=False)]
        is_bad = number < bad_jobs
        if is_bad and BAD not in hosts:
            hosts[0] = BAD
        late = [BAD] if is_bad else [*draw.choice(hosts, 1)] * (draw.random() < 0.3)
        named = {str(host): NamedHost({DATA: int(draw.integers(1, 9))}) for host in late}
        found.append(RunHosts(f"job-{number}", tuple(map(str, hosts)), 10, named))
    return found


def suspects(runs: list[RunHosts]) -> list[str]:
    return [host.hostname for host in fleet_hosts(runs) if host.is_suspect]


def test_a_bad_host_in_40_of_400_jobs_is_named_first_and_alone() -> None:
    assert [suspects(jobs(seed, 40)) for seed in range(20)] == [[BAD]] * 20


def test_without_a_bad_host_none_is_named() -> None:
    assert sum(bool(suspects(jobs(seed, 0))) for seed in range(20)) <= 1


def run(name: str, *hosts: str, late: tuple[str, ...] = (), windows: int = 4, hour: int = 0) -> RunHosts:
    named = {
        host: NamedHost(
            {DATA: 2}, datetime(2026, 3, 1, hour, tzinfo=UTC), datetime(2026, 3, 1, hour, 30, tzinfo=UTC)
        )
        for host in late
    }
    return RunHosts(name, hosts, windows, named)


def test_a_record_holds_how_often_where_and_since_when() -> None:
    runs = [
        run("one", "a", "b", late=("a",)),
        run("two", "a", "c", late=("a",), hour=5),
        run("three", "a", "b"),
    ]
    (found,) = fleet_hosts(runs)
    assert found == FleetHost(
        hostname="a",
        runs=3,
        windows=12,
        compared_runs=2,
        named_runs=2,
        expected_runs=1.0,
        chance=0.75,  # a quarter, corrected for three hosts
        named_windows=4,
        stages=((DATA, 4),),
        first_at=datetime(2026, 3, 1, 0, tzinfo=UTC),
        last_at=datetime(2026, 3, 1, 5, 30, tzinfo=UTC),
        run_ids=("two", "one"),
    )


def test_runs_on_one_host_do_not_distinguish_hosts() -> None:
    (found,) = fleet_hosts([run(f"run-{number}", "a", late=("a",)) for number in range(30)])
    assert (found.runs, found.compared_runs, found.named_runs, found.chance) == (30, 0, 0, 1.0)
    assert not found.is_suspect


def test_hosts_that_always_run_together_are_suspected_together() -> None:
    others = [f"host-{number}" for number in range(8)]
    runs = [run(f"run-{number}", "a", "b", *others, late=("a", "b")) for number in range(12)]
    assert suspects(runs) == ["a", "b"]


def test_the_number_of_windows_of_a_run_changes_nothing() -> None:
    runs = jobs(3, 40)
    longer = [
        replace(one, named={host: NamedHost({DATA: 500}) for host in one.named}, windows=1000) for one in runs
    ]
    assert [host.chance for host in fleet_hosts(longer)] == [host.chance for host in fleet_hosts(runs)]


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.01, 0.99))
def test_with_one_probability_the_chance_is_binomial(found: int, trials: int, chance: float) -> None:
    assert at_least(found, {chance: trials}) == pytest.approx(binom.sf(found - 1, trials, chance), abs=1e-12)


def test_certain_trials_add_successes() -> None:
    assert at_least(4, {1.0: 3, 0.5: 1}) == pytest.approx(0.5)
    assert at_least(3, {1.0: 3, 0.5: 1}) == pytest.approx(1.0)
