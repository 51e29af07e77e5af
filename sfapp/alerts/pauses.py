"""Times of day at which no message is sent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, tzinfo
from zoneinfo import ZoneInfo

from sfapp.errors import AlertError

_RANGE = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class DailyPause:
    """A time of each day, from ``begin`` until before ``end``; past midnight if it ends earlier."""

    begin: time
    end: time

    @classmethod
    def parse(cls, text: str) -> DailyPause:
        """Parse ``22:00-07:00``.

        Raises:
            AlertError: it is no such range.
        """
        match = _RANGE.fullmatch(text.strip())
        try:
            if match is None:
                raise ValueError
            hours = [int(part) for part in match.groups()]
            pause = cls(time(hours[0], hours[1]), time(hours[2], hours[3]))
        except ValueError:
            raise AlertError(f"{text!r:.80} is no time of day: write HH:MM-HH:MM, as 22:00-07:00") from None
        if pause.begin == pause.end:
            raise AlertError(f"{text!r:.80} begins when it ends: nothing would ever be sent, or always")
        return pause

    def holds(self, moment: time) -> bool:
        """Return whether a time of day lies in it."""
        if self.begin < self.end:
            return self.begin <= moment < self.end
        return moment >= self.begin or moment < self.end


@dataclass(frozen=True, slots=True)
class Pauses:
    """Times of each day in one time zone; that of this machine if ``zone`` is None."""

    daily: Sequence[DailyPause] = ()
    zone: tzinfo | None = None

    @classmethod
    def of(cls, texts: Sequence[str], zone: str | None) -> Pauses:
        """Parse times of day and the name of a time zone.

        Raises:
            AlertError: one of them is invalid.
        """
        try:
            found = None if zone is None else ZoneInfo(zone)
        except (KeyError, ValueError, OSError):
            raise AlertError(f"there is no time zone {zone!r:.80}: write Europe/Berlin or UTC") from None
        return cls(tuple(map(DailyPause.parse, texts)), found)

    def hold_at(self, moment: datetime) -> bool:
        """Return whether nothing may be sent at this moment, which has a time zone."""
        local = moment.astimezone(self.zone).time()
        return any(pause.holds(local) for pause in self.daily)
