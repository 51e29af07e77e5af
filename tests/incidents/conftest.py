"""Fixtures of the incident log."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfapp.incidents import IncidentLog


@pytest.fixture
def log(tmp_path: Path) -> IncidentLog:
    return IncidentLog.for_packets(tmp_path)
