"""Compaction of the incident log loses no line while processes write, read and are killed."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
import zlib
from pathlib import Path

import msgspec
import pytest

from sfapp.errors import IncidentError
from sfapp.incidents import IncidentLog
from sfapp.incidents import log as log_module
from sfapp.incidents.compaction import is_pack, pack, unpack
from tests.incidents.incident_editors import author, write_incident

SMALL = 4_000
"""Bytes from which on the logs of these tests are compacted."""

BOMB = zlib.compress(b"x" * (40 << 20), 9)
"""Content of a pack whose lines are a thousand times as long."""

WRITER = """
import sys
from pathlib import Path
from sfapp.incidents import IncidentEditor, IncidentLog
log = IncidentLog(Path(sys.argv[1]), compact_at=int(sys.argv[3]))
editor = IncidentEditor(log, sys.argv[2])
for number in range(150):
    note = editor.write_note(f"{sys.argv[2]} {number} " + "x" * 100)
    if number % 3 == 0:
        editor.undo(editor.edit_note(log.state().note(note), "changed"))
    print(number, flush=True)
"""


def start_writer(path: Path, name: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WRITER, str(path), name, str(SMALL)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def finish(job: subprocess.Popen[str]) -> list[str]:
    """Wait for a writer and return the numbers of the notes that it wrote."""
    return job.communicate(timeout=60)[0].split()


def plain_lines(content: bytes) -> bytes:
    """The lines of a log as they were written."""
    lines = content.splitlines(keepends=True)
    return b"".join(unpack(line, 1 << 28, 1 << 28) if is_pack(line) else line for line in lines)


@pytest.fixture
def small(log: IncidentLog) -> IncidentLog:
    return IncidentLog(log.path, compact_at=SMALL)


def test_a_compacted_log_has_every_line_and_the_same_state(log: IncidentLog, small: IncidentLog) -> None:
    write_incident(log)
    with log.path.open("ab") as file:
        file.write(b'\n{"v":9,"kind":"later"}\n\xff nonsense\n')
    ada = author(log, "Ada")
    undone = ada.undo(ada.write_note("x" * 5_000))
    lines, before = log.path.read_bytes(), log.state()

    author(small, "Grace").write_note("one more")

    content = log.path.read_bytes()
    assert len(content) < len(lines)
    assert plain_lines(content).startswith(lines)
    after = IncidentLog(log.path).state()
    assert after == small.state() == log.state()
    assert after.events[:-1] == before.events
    assert after.notices == before.notices
    ada.undo(undone)  # an edit inside a pack
    assert log.state().notes[-2].text == "x" * 5_000


def test_a_log_is_compacted_again_and_again_and_shrinks(small: IncidentLog) -> None:
    grace = author(small, "Grace")
    for number in range(200):
        grace.write_note(f"note {number}")
    content = small.path.read_bytes()
    packs = [line for line in content.splitlines(keepends=True) if is_pack(line)]
    assert len(packs) > 5
    assert len(content) - sum(map(len, packs)) < SMALL
    assert len(content) < len(plain_lines(content)) / 2
    assert [note.text for note in small.state().notes] == [f"note {number}" for number in range(200)]
    assert small.state() == IncidentLog(small.path).state()


def test_nothing_is_lost_when_processes_edit_read_and_compact_at_once(small: IncidentLog) -> None:
    small.path.parent.mkdir()
    reader = IncidentLog(small.path)
    names = ["a", "b", "c"]
    jobs = [start_writer(small.path, name) for name in names]
    seen = 0
    while any(job.poll() is None for job in jobs):
        events = len(reader.state().events)
        assert events >= seen
        seen = events
    assert [len(finish(job)) for job in jobs] == [150, 150, 150]

    state = reader.state()
    assert state == IncidentLog(small.path).state()
    assert state.notices == ()
    assert len(state.events) == 3 * (150 + 2 * 50)
    assert is_pack(small.path.read_bytes())
    for name in names:
        mine = [note.text.split()[1] for note in state.notes if note.written.by == name]
        assert mine == [str(number) for number in range(150)]


def test_a_writer_killed_while_it_compacts_loses_no_acknowledged_edit(small: IncidentLog) -> None:
    small.path.parent.mkdir()
    acknowledged: list[str] = []
    for kill in range(6):
        job = start_writer(small.path, f"k{kill}")
        assert job.stdout is not None
        first = job.stdout.readline().strip()
        time.sleep(0.02 * kill)
        job.kill()
        numbers = [first, *finish(job)]
        acknowledged += [f"k{kill} {number}" for number in numbers]

    author(small, "Ada").write_note("y" * SMALL)  # compacts
    texts = {" ".join(note.text.split()[:2]) for note in IncidentLog(small.path).state().notes}
    assert set(acknowledged) <= texts
    assert [file.name for file in small.path.parent.iterdir()] == [small.path.name]


def test_an_edit_that_waited_for_a_compaction_is_written_to_the_new_file(small: IncidentLog) -> None:
    """A writer that has opened the old file before it is replaced must not append to it."""
    author(small, "Ada").write_note("first")
    job = start_writer(small.path, "waits")
    for number in range(100):
        author(small, "Ada").write_note(f"{number} " + "x" * SMALL)  # each one compacts
    assert len(finish(job)) == 150
    written = [note for note in IncidentLog(small.path).state().notes if note.written.by == "waits"]
    assert len(written) == 150


def test_a_new_file_with_the_inode_number_of_the_old_one_is_read_from_its_begin(small: IncidentLog) -> None:
    """File systems use inode numbers again, so a reader may find the number that it knows at two files."""
    grace = author(small, "Grace")
    grace.write_note("x" * 3_000)
    one_edit, reader = small.path.read_bytes(), IncidentLog(small.path)
    for number in range(100):
        grace.write_note(f"{number}")
    many_edits = small.path.read_bytes()
    assert is_pack(many_edits)
    assert len(many_edits) > len(one_edit)

    small.path.write_bytes(one_edit)
    assert len(reader.state().events) == 1
    small.path.write_bytes(many_edits)  # in place: the inode stays
    assert len(reader.state().events) == 101
    assert reader.state() == IncidentLog(small.path).state()


def test_an_edit_is_kept_if_there_is_no_room_to_compact(small: IncidentLog) -> None:
    ada = author(small, "Ada")
    text = os.urandom(1_300).hex()
    ada.write_note(text)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for number in range(10):
            size = small.path.stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, limits[1]))
            ada.write_note(f"{number}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [note.text for note in small.state().notes] == [text, *map(str, range(10))]


def test_links_owners_and_permissions_stay(small: IncidentLog, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere.jsonl"
    real.touch()
    real.chmod(0o664)
    small.path.parent.mkdir()
    small.path.symlink_to(real)
    for _ in range(10):
        author(small, "Ada").write_note("x" * SMALL)
    assert small.path.is_symlink()
    assert is_pack(real.read_bytes())
    assert real.stat().st_mode & 0o777 == 0o664

    second = tmp_path / "second name.jsonl"
    os.link(real, second)
    for _ in range(10):
        author(small, "Ada").write_note("y" * SMALL)
    assert second.read_bytes() == real.read_bytes()
    assert len(small.state().notes) == 20


def damaged(line: bytes, **changes: object) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(line) | changes) + b"\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"v": 3}, "a pack of format 3"),
        ({"zlib": "????"}, "a damaged pack"),
        ({"zlib": "AAAA"}, "a damaged pack"),
        ({"sha256": "0"}, "differ from their checksum"),
    ],
)
def test_a_damaged_pack_is_reported_and_kept(
    small: IncidentLog, changes: dict[str, object], message: str
) -> None:
    ada = author(small, "Ada")
    ada.write_note("x" * SMALL)
    line = damaged(small.path.read_bytes(), **changes)
    small.path.write_bytes(line)

    ada.write_note("after")
    state = IncidentLog(small.path).state()
    assert [note.text for note in state.notes] == ["after"]
    assert message in state.notices[0]
    ada.write_note("x" * SMALL)
    assert small.path.read_bytes().startswith(line)


def test_a_pack_that_unpacks_to_more_than_a_log_may_hold_is_refused(log: IncidentLog) -> None:
    log.path.parent.mkdir()
    bomb = damaged(pack(b"\n"), zlib=zlib.compress(b"\n" * (257 << 20), 1))
    log.path.write_bytes(bomb)
    assert "a pack of more than" in log.state().notices[0]


@pytest.mark.parametrize("more", [1, 2], ids=["one byte", "two bytes"])
def test_a_pack_after_more_lines_than_a_log_may_hold_takes_no_memory(
    log: IncidentLog, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(log_module, "MAX_BYTES", 1 << 20)
    log.path.parent.mkdir()
    full = pack(b"x" * ((1 << 20) - 1) + b"\n")
    log.path.write_bytes(full + b"\n" * more + damaged(pack(b"\n"), zlib=BOMB))
    tracemalloc.start()
    try:
        notices = log.state().notices
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert "a pack of more than 0 bytes" in notices[-1]


@pytest.mark.parametrize(
    "compressed",
    [BOMB, BOMB[:-1], BOMB[:-5] + b"\xff" * 5],
    ids=["another checksum", "cut off", "another content"],
)
def test_damaged_packs_are_unpacked_up_to_the_size_of_a_log_together(
    log: IncidentLog, monkeypatch: pytest.MonkeyPatch, compressed: bytes
) -> None:
    monkeypatch.setattr(log_module, "MAX_BYTES", 100 << 20)
    log.path.parent.mkdir()
    log.path.write_bytes(damaged(pack(b"\n"), zlib=compressed) * 200)
    author(log, "Ada").write_note("after")
    state = IncidentLog(log.path).state()
    assert [note.text for note in state.notes] == ["after"]
    assert "a damaged pack" in state.notices[0]
    assert "not unpacked, after damaged packs of over 100 MB" in state.notices[50]


def test_a_full_log_refuses_an_edit_and_stays_readable(
    log: IncidentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = author(log, "Ada")
    ada.write_note("kept")
    monkeypatch.setattr(log_module, "MAX_BYTES", 3_000)
    with pytest.raises(IncidentError, match="is full"):
        ada.write_note("x" * 3_000)
    assert [note.text for note in log.state().notes] == ["kept"]
