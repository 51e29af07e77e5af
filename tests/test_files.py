"""Files are replaced completely or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sfapp.files import atomic_writer, write_atomic


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


def test_the_longest_name_that_a_file_system_allows(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)

    write_atomic(path, b"content")

    assert path.read_bytes() == b"content"
