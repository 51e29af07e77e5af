"""Why a window did not come together: exceptions that stay inside the recorder, which then writes parts; and
how the job's log hears of what went wrong."""

from __future__ import annotations

import logging

_LOG = logging.getLogger("sfapp")


class GatherRefused(Exception):
    """All ranks agree that this window cannot be put together; the next may. Stays inside the recorder."""


class GatherFailed(Exception):
    """A rank is gone or late, the group is of no more use. Stays inside the recorder."""


def warn(what: str) -> None:
    """A warning in the log ``sfapp``, which must not cost the training anything."""
    try:
        _LOG.warning("%s", what)
    except Exception:  # a handler or filter of the job's own failed: it has nowhere to be told
        return
