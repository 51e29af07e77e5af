"""Results of the checks of an environment, and what they say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

CheckStatus = Literal["ok", "limited", "failed"]

STATUSES: Mapping[CheckStatus, str] = {
    "ok": "It works.",
    "limited": "It is not available here, and recording works without it.",
    "failed": "Nothing can be recorded without it, or something that is set up here cannot work.",
}
"""Every status of a check with its meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Result of one check.

    Attributes:
        area: group of checks, as a heading.
        name: what was checked.
        found: what was found, as a phrase.
        remedy: what to do about it; empty if nothing is to be done.
    """

    area: str
    name: str
    status: CheckStatus
    found: str
    remedy: str = ""


def document(results: Sequence[CheckResult], about: Mapping[str, str]) -> dict[str, Any]:
    """Return the object of ``--json``.

    Args:
        about: versions and machine, by name.
    """
    return {
        "can_record": can_record(results),
        "about": dict(about),
        "results": [asdict(result) for result in results],
    }


def can_record(results: Sequence[CheckResult]) -> bool:
    """Return whether no check failed."""
    return all(result.status != "failed" for result in results)
