"""Processes that write packets for a recorder."""

from __future__ import annotations

import os

import psutil


def writer_processes_of(starter: int | None = None) -> list[psutil.Process]:
    """Return the running writer processes that a process, by default this one, has started."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if (process.info["cmdline"] or [])[1:4] == ["-P", "-m", "sfapp.packets.writer_process"]
        and process.info["cmdline"][-1] == str(starter or os.getpid())
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
