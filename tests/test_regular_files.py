"""A named pipe in the place of a file is refused at once, wherever sfapp opens a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sfapp.errors import SfappError
from sfapp.files import open_regular, read_regular
from sfapp.importers import ImportOptions, read_mapping, read_traces
from sfapp.importers.import_formats import IMPORT_FORMATS
from sfapp.incidents import IncidentEditor, IncidentLog
from sfapp.metrics.sample_files import read_header
from sfapp.metrics.sample_log import MetricsLog
from sfapp.model.samples import ProcessSample
from sfapp.packets import Quarantined, load_packet, packet_path, read_operators, read_packet
from sfapp.packets.attempts import RESTARTS_FILE
from sfapp.packets.newest_steps import read_newest_steps
from sfapp.store import Store
from sfapp.store.database import spare_folder
from sfapp.store.opening import open_in_memory
from sfapp.stream.encryption import Keys
from sfapp.stream.messages import VERSION, StreamHello
from sfapp.stream.run_restarts import RunRestarts
from tests.store.jobs import put_run


@contextmanager
def at_once(seconds: int = 20) -> Iterator[None]:
    """Fail where the block waits: opening a pipe waits for its other end, without end."""

    def hangs(*_: object) -> None:
        raise AssertionError("waits for the other end of the pipe")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pipe_at(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("mode", ["rb", "r+b", "ab", "ab+", "wb"])
def test_only_regular_files_are_opened(tmp_path: Path, mode: str) -> None:
    pipe = pipe_at(tmp_path / "pipe")
    link = tmp_path / "link to it"
    link.symlink_to(pipe)

    for path in (pipe, link, tmp_path, Path("/dev/null")):
        with at_once(), pytest.raises(OSError, match=r"not a regular file|Is a directory|No such device"):
            open_regular(path, mode)


def test_links_to_regular_files_are_followed_unless_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")

    assert read_regular(link, 7) == b"content"
    with pytest.raises(OSError, match="symbolic links"):
        read_regular(link, 7, follow_links=False)
    with pytest.raises(OSError, match="more than 6 bytes"):
        read_regular(link, 6)


def test_a_file_beyond_its_bound_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(2**40)
    tracemalloc.start()
    try:
        with pytest.raises(OSError, match="more than"):
            read_regular(path, 2**28)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_new_file_has_the_permissions_asked_for(tmp_path: Path) -> None:
    with open_regular(tmp_path / "secret", "xb", permissions=0o600) as file:
        file.write(b"key")

    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        open_regular(tmp_path / "secret", "xb")


READERS: dict[str, Callable[[Path], object]] = {
    "packet": read_packet,
    "operator events": read_operators,
    "newest steps": read_newest_steps,
    "samples": read_header,
    "keys of a stream": Keys.load,
    "mapping.toml": read_mapping,
    "incidents": lambda path: IncidentLog(path).state(),
    "an edit": lambda path: IncidentLog(path).append([]),
    "store.duckdb": lambda path: Store.open([path.parent], db=path),
}


@pytest.mark.parametrize("what", READERS)
def test_a_pipe_in_the_place_of_a_file_is_refused(tmp_path: Path, what: str) -> None:
    pipe = pipe_at(tmp_path / what)

    with at_once(), pytest.raises((OSError, SfappError), match="not a regular file"):
        READERS[what](pipe)


@pytest.mark.parametrize("name", IMPORT_FORMATS)
def test_an_importer_refuses_a_pipe(tmp_path: Path, name: str) -> None:
    suffix = IMPORT_FORMATS[name].suffixes[0]
    pipe = pipe_at(tmp_path / (suffix if suffix[:1] not in ("", ".") else f"trace_3{suffix}"))

    with at_once():
        (refused,) = read_traces(name, [pipe], ImportOptions()).refused

    assert "not a regular file" in refused.reason


def test_a_packet_that_is_a_pipe_is_quarantined(tmp_path: Path) -> None:
    with at_once():
        loaded = load_packet(pipe_at(tmp_path / "00000000.parquet"))

    assert isinstance(loaded, Quarantined)
    assert loaded.reason == "cannot be read: not a regular file"


@pytest.mark.parametrize("name", ["store.duckdb", "store.duckdb.lock", "store.duckdb.wal"])
def test_a_store_next_to_packets_opens_despite_pipes(tmp_path: Path, name: str) -> None:
    with Store.open([tmp_path]):
        pass
    if name != "store.duckdb.wal":
        (tmp_path / ".sfapp" / name).unlink()
    pipe_at(tmp_path / ".sfapp" / name)

    with at_once(), Store.open([tmp_path]) as store:
        assert "memory" in store.note


def test_chosen_references_that_are_a_pipe_are_refused(tmp_path: Path) -> None:
    pipe_at(tmp_path / ".sfapp" / "store.references.json")

    with at_once(), pytest.raises(SfappError, match="not a regular file"):
        Store.open([tmp_path])


def test_samples_are_lost_and_counted_where_their_file_is_a_pipe(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, "run", now_s=lambda: 0.0)
    pipe_at(log.folder / "19700101T000000Z.jsonl")

    with at_once():
        log.add([ProcessSample(at_ns=0, node_rank=0, rank=0, rss_bytes=1)])

    assert (log.lost, "not a regular file" in log.failure) == (1, True)


def test_an_aggregator_names_the_pipe_that_it_cannot_write_to(tmp_path: Path) -> None:
    pipe_at(packet_path(tmp_path, "run", 0).with_name(RESTARTS_FILE))
    hello = StreamHello(v=VERSION, rank=0, incarnation="i", run_id="run", attempt="a", world_size=2)

    with at_once(), pytest.raises(SfappError, match="not a regular file"):
        RunRestarts(tmp_path, "run").entry(hello, None, 0.0)


def linked_to_a_start_up_file(link: Path, tmp_path: Path) -> Path:
    """A link where a file is appended to, to one that a shell runs."""
    target = tmp_path / ".bashrc"
    target.write_text("alias ll=ls\n")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    return target


def test_nothing_is_appended_through_a_link_next_to_packets(tmp_path: Path) -> None:
    """Texts of notes and names of attempts would else be written to any file of the app's user."""
    packets = tmp_path / "packets"
    packets.mkdir()
    log = IncidentLog.for_packets(packets)
    samples = MetricsLog(packets, "run", now_s=lambda: 0.0)
    restarts = packet_path(packets, "run", 0).with_name(RESTARTS_FILE)
    target = linked_to_a_start_up_file(log.path, tmp_path)
    for link in (restarts, samples.folder / "19700101T000000Z.jsonl"):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)

    with pytest.raises(SfappError, match=r"a link to '.*\.bashrc'"):
        IncidentEditor(log, "Eve").write_note("$(touch /tmp/harm)")
    hello = StreamHello(v=VERSION, rank=0, incarnation="$(id)", run_id="run", attempt="a", world_size=2)
    with pytest.raises(SfappError, match="cannot write"):
        RunRestarts(packets, "run").entry(hello, None, 0.0)
    samples.add([ProcessSample(at_ns=0, node_rank=0, rank=0, rss_bytes=1)])

    assert samples.lost == 1
    assert target.read_text() == "alias ll=ls\n"


def test_a_log_of_notes_that_is_a_link_to_itself_is_an_error(tmp_path: Path) -> None:
    log = IncidentLog.for_packets(tmp_path)
    log.path.parent.mkdir()
    log.path.symlink_to(log.path.name)

    with pytest.raises(SfappError, match="cannot be written: Too many levels of symbolic links"):
        IncidentEditor(log, "Ada").write_note("words")


def test_a_log_of_notes_may_be_a_link_to_a_log_elsewhere(tmp_path: Path) -> None:
    log = IncidentLog.for_packets(tmp_path)
    log.path.parent.mkdir()
    log.path.symlink_to(tmp_path / "shared.jsonl")
    IncidentEditor(log, "Ada").write_note("kept elsewhere")
    assert [note.text for note in IncidentLog(tmp_path / "shared.jsonl").state().notes] == ["kept elsewhere"]


@pytest.mark.parametrize("name", ["store.duckdb", "store.duckdb.wal", "store.duckdb.tmp"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_store_next_to_packets_writes_through_no_link(tmp_path: Path, name: str, is_there: bool) -> None:
    """DuckDB would write its tables or its log into any file or folder of the app's user."""
    packets, target = tmp_path / "packets", tmp_path / "target"
    put_run(packets)
    with Store.open([packets]):
        pass
    if name == "store.duckdb.tmp":
        target.mkdir()
    elif is_there:
        target.write_text("alias ll=ls\n")
    link = packets / ".sfapp" / name
    link.unlink(missing_ok=True)
    link.symlink_to(target)

    with Store.open([packets]) as store:
        assert store.ingest().added == 5
        assert "in memory" in store.note
    if target.is_dir():
        assert not any(target.iterdir())
    else:
        assert target.exists() == is_there
        assert not is_there or target.read_text() == "alias ll=ls\n"


def test_a_store_in_memory_writes_through_no_link_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB's folder for what no longer fits into memory is ``.tmp`` in the current folder by default."""
    # Given a link of that name, and a store with little memory
    target, spare = tmp_path / "target", Path(spare_folder()).parent
    target.mkdir()
    (tmp_path / ".tmp").symlink_to(target)
    monkeypatch.chdir(tmp_path)
    database = open_in_memory()
    with database.cursor() as cursor:
        cursor.execute("SET memory_limit = '100MB'; SET threads = 1")
        # When its rows do not fit into it
        cursor.execute("CREATE TABLE wide AS SELECT range, md5(range::VARCHAR) FROM range(3000000)")
        # Then they are in a folder that no other user can read, until the store is closed
        assert not any(target.iterdir())
        assert any(spare.rglob("*.tmp"))
        assert spare.stat().st_mode & 0o777 == 0o700
    database.close()
    assert not any(spare.rglob("*.tmp"))


IN_MEMORY = """
import os, sys, tempfile
from sfapp.store.database import spare_folder
from sfapp.store.opening import open_in_memory
open_in_memory().close()
print(ascii(spare_folder()), len(os.listdir(tempfile.gettempdir())))
"""


def test_what_a_killed_process_could_not_hold_in_memory_is_removed_by_the_next(tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", IN_MEMORY]
    # Given a process with such a folder, one of another program, and a link of such a name
    (tmp_path / "sfapp-store-other").mkdir()
    (tmp_path / "sfapp-store-link").symlink_to(tmp_path / "sfapp-store-other")
    waiting = [sys.executable, "-c", f"{IN_MEMORY}\nsys.stdout.flush(); sys.stdin.read()"]
    with subprocess.Popen(waiting, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (spare,) = {path.parent for path in tmp_path.glob("sfapp-store-*/lock")}
        (spare / "values.tmp").write_bytes(bytes(1000))
        # When others have one, and the process is killed, then its folder is removed after that
        subprocess.run(command, env=environ, check=True)
        assert (spare / "values.tmp").exists()
        process.kill()
    assert spare.exists()
    subprocess.run(command, env=environ, check=True)
    assert {path.name for path in tmp_path.iterdir()} == {"sfapp-store-other", "sfapp-store-link"}


@pytest.mark.parametrize("name", [b"usual", b"\xff"])
def test_a_store_in_memory_is_made_whatever_the_name_of_the_temporary_folder_is(
    tmp_path: Path, name: bytes
) -> None:
    folder = os.path.join(os.fsencode(tmp_path), name)
    os.mkdir(folder)
    command = [sys.executable, "-c", IN_MEMORY]
    environ = {**os.environb, b"TMPDIR": folder}
    result = subprocess.run(command, env=environ, capture_output=True, check=True, text=True)
    spare, folders = result.stdout.split()
    assert (spare == "''") is (name == b"\xff")  # DuckDB takes names in UTF-8 only.
    assert folders == "1"
    assert not os.listdir(folder)
