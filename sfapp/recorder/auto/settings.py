"""Settings of the recording of an unmodified script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings from the command line of ``sfapp run``."""

    output: str | Path
    storage_options: Mapping[str, str] = field(default_factory=dict)
    run_id: str | None = None
    window_steps: int = 100
    between: bool = True
    event_fraction: float = 0.05
