"""Describe where in a run an effect began and ended (accounting.md §17)."""

from __future__ import annotations

from sfapp.model.onsets import Episode, StepEstimate
from sfapp.views import format

_MOST_RANKS = 4


def episode_line(episode: Episode) -> str:
    """Return ``rank 3 · data: began at step 120 (118–121), ended at step 199 (199–200)``."""
    return f"{episode_place(episode)}: {began_words(episode)}, {ended_words(episode)}"


def episode_place(episode: Episode) -> str:
    """Return ``rank 3 · data`` or ``growth · backward``."""
    return f"{_ranks_or_kind(episode)} · {format.short_stage(episode.stage)}"


def began_words(episode: Episode) -> str:
    """Return ``began at step 120 (118–121)``."""
    return f"began {estimate_words(episode.began)}"


def ended_words(episode: Episode) -> str:
    """Return ``ended at step 199 (199–200)``; the step is the last one with the effect."""
    if episode.ended is None:
        return "lasts to the end of the run"
    return f"ended {estimate_words(episode.ended)}"


def _ranks_or_kind(episode: Episode) -> str:
    if not episode.ranks:
        return episode.kind
    if len(episode.ranks) == 1:
        return f"rank {episode.ranks[0]}"
    return f"ranks {format.ranges(episode.ranks, _MOST_RANKS)}"


def estimate_words(found: StepEstimate) -> str:
    """Return ``at step 120 (118–121)``, or ``between steps 80 and 159``."""
    if found.step is None:
        return f"between steps {found.low} and {found.high}"
    if found.low == found.high:
        return f"at step {found.step}"
    return f"at step {found.step} ({found.low}–{found.high})"
