"""Limit what a helper process takes, from within it."""

from __future__ import annotations

from contextlib import suppress


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
