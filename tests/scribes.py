"""The processes that write packets for others."""

from __future__ import annotations

import os

import psutil


def scribes_of(starter: int | None = None) -> list[psutil.Process]:
    """Those that a process has started, by default this one, and that have not ended."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if (process.info["cmdline"] or [])[1:3] == ["-m", "sfapp.packets.writer_process"]
        and process.info["cmdline"][-1] == str(starter or os.getpid())
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
