"""Set the limits of this process."""

from __future__ import annotations

from contextlib import suppress

_MOST_FILES = 2**18
"""Enough for all ranks that an aggregator remembers; some systems allow a billion, which costs memory."""


def limit_process(memory_bytes: int, cpu_seconds: int | None = None) -> None:
    """Limit this process's memory and CPU time; Windows has no such limits."""
    with suppress(ImportError):
        import resource

        for kind, most in ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_CPU, cpu_seconds)):
            if most is None:
                continue
            _, hard = resource.getrlimit(kind)
            limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (limit, limit))


def allow_open_files() -> None:
    """Let this process open as many files and connections as the system allows a user; often 1,024 at first.

    Without a free one, a server accepts no connection and writes no file.
    """
    with suppress(ImportError):  # Windows has no such limits.
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            with suppress(OSError, ValueError):  # some systems allow less than they state
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
