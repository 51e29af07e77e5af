"""Attributes of ranks: found where the system has them, declared by the job, and bounded."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

from sfapp.errors import RecorderError
from sfapp.packets import read_window
from sfapp.recorder.rank_attributes import MAX_BYTES, rank_attributes
from sfapp.service.pseudonyms import Pseudonyms
from tests.recorder.clocked_recorder import Clock, recorder


def test_a_packet_has_what_is_found_and_what_is_declared(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFAPP_IMAGE", "registry/train:7")
    with recorder(tmp_path, clock, attributes={"rack": "r12", "kernel": "mine"}) as perf, perf.step():
        clock.tick(1)
    window = read_window(tmp_path)
    assert window.attributes["image"] == ("registry/train:7",)
    assert window.attributes["rack"] == ("r12",)
    assert window.attributes["kernel"] == ("mine",)
    under_pseudonyms = Pseudonyms.of([window]).window(window)
    assert {"image", "rack"}.isdisjoint(under_pseudonyms.attributes)


def test_the_kernel_is_that_of_the_system() -> None:
    assert rank_attributes({})["kernel"] == platform.release()


def test_where_there_is_not_room_for_all_declared_ones_stay() -> None:
    declared = {f"name{number}": "x" * 240 for number in range(7)} | {"last": "y" * 256, "z": "z" * 12}
    found = rank_attributes(declared)
    assert found.items() >= declared.items()
    assert "kernel" not in found


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"rack": 3}, "the attribute 'rack' must be a text of at most 256 characters"),
        ({"rack": "x" * 257}, "the attribute 'rack' must be a text"),
        ({"rack": "\ud800"}, "the attribute 'rack' must be a text"),
        ({"": "x"}, "an attribute's name must have 1 to 256 characters"),
        ({f"name{number}": "" for number in range(33)}, "at most 32 names"),
        ({f"name{number}": "x" * 250 for number in range(9)}, f"{MAX_BYTES:,} bytes"),
        ("rack", "attributes must be texts by name"),
    ],
)
def test_others_are_refused(tmp_path: Path, clock: Clock, declared: Any, reason: str) -> None:
    with pytest.raises(RecorderError, match=reason):
        recorder(tmp_path, clock, attributes=declared)
