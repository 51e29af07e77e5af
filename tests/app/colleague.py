"""Somebody else who writes about the same packets, from a process of their own."""

from __future__ import annotations

from sfapp.incidents import IncidentEditor, IncidentLog


def colleague(log: IncidentLog, name: str = "Grace") -> IncidentEditor:
    """An author with a log of their own over the same file: the app hears of their edits from the file."""
    return IncidentEditor(IncidentLog(log.path), name)
