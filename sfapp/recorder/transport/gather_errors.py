"""Exceptions of gathering, which stay inside the recorder, and its warnings in the job's log."""

from __future__ import annotations

import logging

_LOG = logging.getLogger("sfapp")


class GatherRefused(Exception):
    """The ranks' windows cannot be put together, on all ranks; the next window may be."""


class GatherFailed(Exception):
    """A rank is gone or late, and the group is of no further use."""


def warn(message: str) -> None:
    """Log a warning to ``sfapp``; never raises."""
    try:
        _LOG.warning("%s", message)
    except Exception:  # A handler or filter of the job failed: there is nowhere to report it.
        return
