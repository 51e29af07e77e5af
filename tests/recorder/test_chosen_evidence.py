"""Which kinds of host evidence a recorder records: by option, and by environment."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from sfapp.errors import RecorderError
from sfapp.model.host_evidence import EVIDENCE_KEY, EVIDENCE_KINDS
from sfapp.packets import read_window
from sfapp.recorder.side_channels.host_evidence import VARIABLE, chosen_kinds
from tests.recorder.test_host_evidence import recorder


def test_all_kinds_are_recorded_unless_some_are_chosen() -> None:
    assert chosen_kinds(True, "") == EVIDENCE_KINDS
    assert chosen_kinds(False, "") == ()
    assert chosen_kinds(["gc", "cpu"], "") == ("cpu", "gc")


def test_the_environment_takes_precedence_and_ignores_what_is_no_kind() -> None:
    assert chosen_kinds(True, "off") == ()
    assert chosen_kinds(False, " GC, pressure,nonsense") == ("gc", "pressure")
    assert chosen_kinds(False, "all") == EVIDENCE_KINDS


@pytest.mark.parametrize("option", ["cpu", ["cpu", "disk"]])
def test_other_names_are_refused(tmp_path: Path, option: Any) -> None:
    with pytest.raises(RecorderError, match="evidence must be True, False or some of cpu, gc, runnable"):
        recorder(tmp_path, evidence=option)


def test_without_it_a_packet_has_no_trace_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    callbacks = list(gc.callbacks)
    with recorder(tmp_path) as perf, perf.step():
        assert gc.callbacks == callbacks
    window = read_window(tmp_path)
    assert window.side == {}
    assert EVIDENCE_KEY not in window.manifest.extra
