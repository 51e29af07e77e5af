"""Somebody else who writes about the same packets, from a process of their own."""

from __future__ import annotations

from sfapp.incidents import Author, IncidentLog


def colleague(log: IncidentLog, name: str = "Grace") -> Author:
    """An author with a log of their own over the same file: the app hears of their edits from the file."""
    return Author(IncidentLog(log.path), name)
