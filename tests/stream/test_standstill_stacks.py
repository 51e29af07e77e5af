"""Stacks are requested once per standstill of a run, and not more often than the limits allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfapp.packets.captures import captures
from sfapp.stream.standstill_stacks import LEAST_SECONDS_BETWEEN, MOST_PER_RUN, VARIABLE, StandstillStacks


def test_one_request_per_standstill_and_a_bounded_number_per_run(tmp_path: Path) -> None:
    failures: list[str] = []
    now = [0.0]
    taking = StandstillStacks(tmp_path, failures.append, lambda: now[0])
    assert taking.request("run", 5, range(3000), "rank 3 holds the job")
    assert not taking.request("run", 5, [0, 1], "the same standstill, changed")
    assert not taking.request("run", 6, [0, 1], "too soon")
    assert taking.request("other", 5, [0, 1], "another run")
    for number in range(MOST_PER_RUN + 5):
        now[0] += LEAST_SECONDS_BETWEEN + 1
        taking.request("run", 100 + number, [0, 1], "the next one")
    found = captures(tmp_path, "run")
    assert len(found) == MOST_PER_RUN
    first = found[0].request
    assert (first.kind, len(first.ranks), first.asked_by) == ("stacks", 1024, "sfapp aggregate")
    assert first.reason == "rank 3 holds the job"
    taking.follow()
    assert failures == []


def test_the_requests_can_be_switched_off_and_a_full_disk_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[str] = []
    (tmp_path / "run").write_text("not a folder")
    assert not StandstillStacks(tmp_path, failures.append).request("run", 5, [0], "why")
    assert len(failures) == 1
    monkeypatch.setenv(VARIABLE, "off")
    assert not StandstillStacks(tmp_path, failures.append).request("other", 5, [0], "why")
    assert captures(tmp_path, "other") == []


def test_a_folder_that_may_not_be_looked_into_is_reported(tmp_path: Path) -> None:
    failures: list[str] = []
    # The system refuses every path in it, as it does in a folder of another user
    (tmp_path / "run").symlink_to("x" * 300)
    assert not StandstillStacks(tmp_path, failures.append).request("run", 5, [0], "why")
    assert "cannot be written" in failures[0]
