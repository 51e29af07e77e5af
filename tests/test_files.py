"""Files are replaced completely or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sfapp.files import atomic_writer, output_writer, remove_leftovers, write_atomic


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "file.json"

    assert write_atomic(path, b"first") == 5
    write_atomic(path, b"second")

    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


def test_an_exception_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"old")

    def fail_half_way() -> None:
        with atomic_writer(path) as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail_half_way()

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_readers_see_nothing_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file.json"

    with atomic_writer(path) as file:
        file.write(b"content")
        file.flush()
        assert not path.exists()

    assert path.read_bytes() == b"content"


def test_the_mode_of_a_secret_file_is_set_when_it_is_made(tmp_path: Path) -> None:
    path = tmp_path / "keys"

    with atomic_writer(path, mode=0o600) as file:
        (temporary,) = tmp_path.iterdir()
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        file.write(b"secret")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["n" * 255, "\N{HOURGLASS}" * 85, "\N{SNAIL}" * 63], ids=["1", "3", "4"])
def test_the_longest_name_that_a_file_system_allows(tmp_path: Path, name: str) -> None:
    path = tmp_path / name

    write_atomic(path, b"content")

    assert path.read_bytes() == b"content"


@pytest.mark.parametrize("is_link", [False, True])
def test_output_to_a_pipe_is_written_to_it_and_replaces_nothing(tmp_path: Path, is_link: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    named = tmp_path / "named"
    if is_link:
        named.symlink_to(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        with output_writer(named if is_link else pipe) as file:
            file.write(b"content")
        assert reader.read() == b"content"
    assert pipe.is_fifo()
    assert named.is_symlink() == is_link


def test_output_to_a_file_replaces_it_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with output_writer(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_what_a_killed_writer_left_is_removed_after_a_day(tmp_path: Path) -> None:
    # Given a temporary file of a killed process, one of a running process, and files of similar names
    script = (
        "import os, pathlib, signal, sys; from sfapp.files import atomic_writer\n"
        "with atomic_writer(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    folder = tmp_path / "run"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", script, str(folder / "00000000.parquet")], check=False)
    (left,) = folder.iterdir()
    for name in ("00000000.parquet", ".notes.tmp", ".a.1.0123456x.tmp"):
        (folder / name).touch()
    (folder / ".link.1.01234567.tmp").symlink_to("nowhere")
    (folder / ".pipe.1.01234567.tmp").mkdir()
    day_ago = time.time() - 86_401
    for path in folder.iterdir():
        os.utime(path, (day_ago, day_ago), follow_symlinks=False)
    with atomic_writer(folder / "00000001.parquet"):
        # When leftovers are removed, then that of the killed process is, and only that
        before = set(folder.iterdir())
        assert remove_leftovers(tmp_path) == 1
        assert before - set(folder.iterdir()) == {left}


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_another_process_makes_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    path = tmp_path / "file"

    def refuse(*_: object) -> None:
        raise PermissionError

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    write_atomic(path, b"first", replaces=False)
    assert path.read_bytes() == b"first"

    with pytest.raises(FileExistsError):
        write_atomic(path, b"second", replaces=False)

    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]
