"""Tell when a process sent something, without its clock: its messages may have waited on their way."""

from __future__ import annotations

from dataclasses import dataclass

_PROMPT_SECONDS = 0.5
"""Largest difference between two times at which a process was started, as its messages say, if both came
straight."""

_STEADY_SECONDS = 1.5
"""Seconds for which messages come straight, after others that came late, until times are sure: a process
sends one with its age each second, and what waited arrives at once."""


@dataclass(slots=True)
class SignsOfLife:
    """What the messages of one process say about the time at which it was alive, in monotonic seconds."""

    _started: float = float("inf")
    _age: float = 0.0
    _straight_from: float = 0.0
    _straight_until: float = 0.0
    _was_late: bool = False

    def note(self, age: float, now: float) -> None:
        """Note that a message has arrived which the process sent at this age."""
        started = now - age
        if started < self._started - _PROMPT_SECONDS:  # Messages before it, if any, came late.
            self._was_late = self._was_late or self._started < float("inf")
            self._straight_from = now
        if started < self._started + _PROMPT_SECONDS:
            self._started, self._straight_until = min(started, self._started), now
        self._age = max(self._age, age)

    @property
    def sent_at(self) -> float | None:
        """When the process sent something last; None if that is not sure."""
        if self._was_late and self._straight_until - self._straight_from < _STEADY_SECONDS:
            return None
        return self._started + self._age
