"""Incidents hold every acknowledged edit once and in order, in random histories."""

from __future__ import annotations

from hypothesis import settings

from benchmarks.incident_histories import IncidentHistories

TestIncidentHistories = IncidentHistories.TestCase
TestIncidentHistories.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
