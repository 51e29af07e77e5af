"""``sfapp watch`` as a command: where its state is, how it ends, and what it says of a call that failed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.app.recorded_job import put, recent_window
from tests.builders import CALLBACKS, MS
from tests.commands import run_sfapp


def test_a_user_without_a_home_names_a_file_for_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", str)  # Such a user's ~ stays as it is.
    result = run_sfapp("watch", "http://127.0.0.1:1", "--once", "--notify", "command:true", cwd=tmp_path)
    assert (result.returncode, "no home directory: name a file" in result.stderr) == (2, True)
    assert not list(tmp_path.iterdir())


def test_a_call_for_cron_that_fails_promises_no_attempt_of_its_own(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path, recent_window(number, {} if number < 2 else {(CALLBACKS, 3): 60 * MS}))
    result = run_sfapp("watch", tmp_path, "--once", "--notify", "command:false")
    assert (result.returncode, "the next call tries again" in result.stdout) == (1, True)
    assert "next attempt" not in result.stdout
