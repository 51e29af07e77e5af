"""Files of many times the size of their events, in a process of its own: the short version of 5 GB."""

from __future__ import annotations

from benchmarks import huge_trace


def test_what_is_not_kept_costs_no_memory_and_what_is_kept_costs_little() -> None:
    stacks, usual = huge_trace.run(80_000_000)

    assert stacks.holds, stacks.line()
    assert usual.holds, usual.line()
