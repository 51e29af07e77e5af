"""Exceptions of gathering, which do not leave the recorder, and its warnings in the job's log."""

from __future__ import annotations

import logging

_LOG = logging.getLogger("sfapp")


class GatherRefused(Exception):
    """The ranks' windows cannot be combined, on all ranks; the next window may succeed."""


class GatherFailed(Exception):
    """A rank is gone or late, and the group can no longer be used."""


def warn(message: str) -> None:
    """Log a warning to ``sfapp``; never raises."""
    try:
        _LOG.warning("%s", message)
    except Exception:  # A handler or filter of the job failed, which cannot be reported.
        return
