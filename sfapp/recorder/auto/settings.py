"""Settings of the recording of an unmodified script."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings from the command line of ``sfapp run``."""

    output: Path
    run_id: str | None = None
    window_steps: int = 100
    between: bool = True
    event_fraction: float = 0.05
