"""What alerts are about: a source that cannot be read is asked again."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from sfapp.alerts import sources
from sfapp.alerts.delivery import notify_until
from sfapp.alerts.sources import AppProblems, FolderProblems
from tests.app.recorded_job import job_window, put


def test_a_folder_is_watched_on_while_its_notes_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "FOLDER_SECONDS", 0.05)
    root, stop, lines = tmp_path / "packets", threading.Event(), list[str]()
    put(root, job_window(0, {}))
    notes = root / ".sfapp" / "incidents.jsonl"
    notes.mkdir(parents=True)

    def report(line: str) -> None:
        lines.append(line)
        if len(lines) == 1:
            notes.rmdir()
        else:
            stop.set()

    with FolderProblems.open(root, None, False) as source:
        notify_until(stop, source, [], report)
    assert "cannot be read: not a regular file; it is asked again" in lines[0]
    assert "answers again" in lines[1]


def test_a_watch_that_is_stopped_waits_for_no_answer_of_an_app() -> None:
    stop, lines = threading.Event(), list[str]()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = AppProblems(f"http://127.0.0.1:{silent.getsockname()[1]}", None, None)
        thread = threading.Thread(target=notify_until, args=(stop, source, [], lines.append))
        thread.start()
        connection, _ = silent.accept()
        with connection:
            stop.set()
            thread.join(5)
            assert not thread.is_alive()
    assert not lines
