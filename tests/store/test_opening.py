"""One process a store, and stores that come back whatever happened to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from sfapp.errors import DamagedStoreError, StoreBusyError, StoreError
from sfapp.store import Store, opening
from tests.store.jobs import change_store, numbers, put, put_run, window

HOLD_STORE = """
import sys
from pathlib import Path
from sfapp.store import Store, opening
with Store.open([Path(sys.argv[1])]):
    print("ready", flush=True)
    sys.stdin.read()
"""

HOLD_DUCKDB = """
import sys, duckdb
with duckdb.connect(sys.argv[1]):
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextmanager
def running(code: str, argument: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(argument)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_store_is_next_to_the_packets(tmp_path: Path) -> None:
    put_run(tmp_path)
    with Store.open([tmp_path]) as store:
        assert store.path == tmp_path / ".sfapp" / "store.duckdb"
        assert store.note == ""
    with Store.open([tmp_path], db=tmp_path / "new" / "mine.db") as store:
        store.ingest()
        assert (tmp_path / "new" / "mine.db").exists()
    with Store.open([tmp_path], memory=True) as store:
        assert store.path is None
        assert store.ingest().added == 5


def test_a_single_packet_is_a_root_too(tmp_path: Path) -> None:
    path = put(tmp_path, window())
    put(tmp_path, window(number=1))
    with Store.open([path]) as store:
        store.ingest()
        assert numbers(store) == [0]
        assert store.path == path.parent / ".sfapp" / "store.duckdb"


def test_a_root_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no such file or folder: .*nowhere"):
        Store.open([tmp_path / "nowhere"])
    with pytest.raises(StoreError, match="at least one folder"):
        Store.open([])


def test_a_second_process_is_refused_with_the_holder_of_the_store(tmp_path: Path) -> None:
    with running(HOLD_STORE, tmp_path) as first:
        with pytest.raises(StoreBusyError) as refused:
            Store.open([tmp_path])
        message = str(refused.value)
        assert f"process {first.pid} " in message
        assert "from sfapp.store import Store" in message  # its command line
        assert "--db" in message
    # killed as it was, it leaves nothing in the way
    with Store.open([tmp_path]) as store:
        assert store.note == ""


def test_a_second_opening_in_one_process_is_refused(tmp_path: Path) -> None:
    with Store.open([tmp_path]):
        with pytest.raises(StoreBusyError, match="this very process"):
            Store.open([tmp_path])
        with Store.open([tmp_path], db=tmp_path / "other.duckdb"):
            pass
    with Store.open([tmp_path]):
        pass


def test_a_duckdb_shell_on_the_store_is_named(tmp_path: Path) -> None:
    with Store.open([tmp_path]) as store:
        path = store.path
    assert path is not None
    with (
        running(HOLD_DUCKDB, path) as shell,
        pytest.raises(StoreBusyError, match=f"process {shell.pid} .*import sys, duckdb"),
    ):
        Store.open([tmp_path])


def test_a_store_of_another_schema_version_is_built_again(tmp_path: Path) -> None:
    put_run(tmp_path)
    with Store.open([tmp_path]) as store:
        store.ingest()
        store.set_reference("run", 1)
    with duckdb.connect(tmp_path / ".sfapp" / "store.duckdb") as database:
        database.execute("UPDATE store_info SET value = '999' WHERE key = 'schema_version'")
    with Store.open([tmp_path]) as store:
        assert "schema version 999" in store.note
        assert store.windows().total == 0
        assert store.ingest().added == 5
        # what the operator chose is still there
        reference = store.reference("run")
        assert reference is not None
        assert reference.window == 1


@pytest.mark.parametrize("damage", ["garbage", "empty", "cut", "flipped", "tables gone"])
def test_a_damaged_store_is_built_again(tmp_path: Path, damage: str) -> None:
    put_run(tmp_path)
    with Store.open([tmp_path]) as store:
        store.ingest()
        store.set_reference("run", 1)
    path = tmp_path / ".sfapp" / "store.duckdb"
    whole = path.read_bytes()
    if damage == "garbage":
        path.write_bytes(b"no database at all" * 1000)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "flipped":
        flipped = bytearray(whole)
        for place in range(20_000, len(flipped), 4096):
            flipped[place] ^= 1
        path.write_bytes(flipped)
    else:
        with duckdb.connect(path) as database:
            database.execute("DROP TABLE windows")
    with Store.open([tmp_path]) as store:
        assert "could not be read" in store.note
        assert store.ingest().added == 5
        reference = store.reference("run")
        assert reference is not None
        assert reference.window == 1
    # the unreadable file is kept for inspection
    assert path.with_name("store.duckdb.unreadable").exists()
    with Store.open([tmp_path]) as store:
        assert (store.note, store.ingest().unchanged) == ("", 5)


def test_a_foreign_database_is_not_touched(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.duckdb"
    with duckdb.connect(theirs) as database:
        database.execute("CREATE TABLE precious AS SELECT 42 AS answer")
    with pytest.raises(StoreError, match="tables of its own"):
        Store.open([tmp_path], db=theirs)
    with duckdb.connect(theirs) as database:
        assert database.execute("SELECT answer FROM precious").fetchall() == [(42,)]


def test_a_file_of_another_kind_is_not_touched(tmp_path: Path) -> None:
    put_run(tmp_path)
    file = tmp_path / "thesis.txt"
    file.write_text("Chapter 1")
    with pytest.raises(StoreError, match="is no store of sfapp, nor a DuckDB file: name another with --db"):
        Store.open([tmp_path], db=file)
    assert file.read_text() == "Chapter 1"


def test_where_nothing_can_be_written_the_store_is_in_memory(tmp_path: Path) -> None:
    # given a packet folder where .sfapp cannot be made (permissions do not stop root, a file does)
    put_run(tmp_path)
    (tmp_path / ".sfapp").touch()
    with Store.open([tmp_path]) as store:
        assert store.path is None
        assert "--db" in store.note
        assert store.ingest().added == 5
        store.set_reference("run", 1)
    # but a file named by hand is an error
    with pytest.raises(StoreError, match="cannot be opened for writing"):
        Store.open([tmp_path], db=tmp_path / ".sfapp" / "store.duckdb")


def test_a_name_that_duckdb_cannot_take_is_worked_round(tmp_path: Path) -> None:
    put_run(tmp_path / "what?")
    with Store.open([tmp_path / "what?"]) as store:
        assert store.path is None
        assert store.ingest().added == 5


def test_a_name_that_is_not_utf8_is_worked_round(tmp_path: Path) -> None:
    put_run(root := tmp_path / "folder\udcff")
    with Store.open([root]) as store:
        assert store.path is None
        assert store.ingest().quarantined == 5


def test_unreadable_choices_are_not_thrown_away(tmp_path: Path) -> None:
    choices = tmp_path / ".sfapp" / "store.references.json"
    choices.parent.mkdir()
    choices.write_text("{not json")
    with pytest.raises(StoreError, match=r"store\.references\.json.*fix it"):
        Store.open([tmp_path])
    choices.write_text(json.dumps({"format": 2, "references": {}}))
    with pytest.raises(StoreError, match="newer sfapp"):
        Store.open([tmp_path])
    choices.unlink()
    with Store.open([tmp_path]):
        pass


def test_a_closed_store_refuses_queries(tmp_path: Path) -> None:
    store = Store.open([tmp_path])
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.runs()


@pytest.mark.parametrize("given", [["--token", "secret-of-the-app"], ["--token=secret-of-the-app"]])
def test_the_lock_file_does_not_hold_the_token(
    tmp_path: Path, given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["sfapp", "serve", *given, "packets"])
    with Store.open([tmp_path]):
        holder = (tmp_path / ".sfapp" / "store.duckdb.lock").read_text()
        assert "sfapp serve --token" in holder
        assert "secret" not in holder


def test_a_store_is_opened_whatever_the_command_line_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["sfapp", "serve", os.fsdecode(b"caf\xe9")])
    with Store.open([tmp_path]):
        assert "caf" in (tmp_path / ".sfapp" / "store.duckdb.lock").read_text()


def test_a_lock_file_that_is_a_link_leaves_its_target(tmp_path: Path) -> None:
    target = tmp_path / ".bashrc"
    target.write_text("alias ll=ls\n")
    lock = tmp_path / "packets" / ".sfapp" / "store.duckdb.lock"
    lock.parent.mkdir(parents=True)
    lock.symlink_to(target)
    with Store.open([tmp_path / "packets"]) as store:
        assert "memory" in store.note
    # nor does one that is put there while the store is open
    lock.unlink()
    with Store.open([tmp_path / "packets"]) as store:
        assert not store.note
        lock.unlink()
        lock.symlink_to(target)
    assert target.read_text() == "alias ll=ls\n"


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE quarantine; CREATE VIEW quarantine AS SELECT 'p' AS path, 1::BIGINT AS size, "
        "1::BIGINT AS mtime_ns, content AS sha256, content AS reason FROM read_text('{secret}')",
        "CREATE MACRO lower(text) AS (SELECT content FROM read_text('{secret}'))",
        "CREATE MACRO duckdb_views() AS TABLE SELECT 1 AS view_name, true AS internal WHERE false",
        "CREATE TRIGGER cells AFTER INSERT ON packets FOR EACH STATEMENT INSERT INTO quarantine "
        "SELECT 'p', 1, 1, content, content FROM read_text('{secret}')",
        "CREATE UNIQUE INDEX cells ON packets(sha256)",
    ],
    ids=["view", "macro", "macro of the catalogue", "trigger", "index"],
)
def test_objects_of_another_program_in_a_store_are_never_run(tmp_path: Path, statement: str) -> None:
    secret = tmp_path / "secret of the user.txt"
    secret.write_text("TOKEN")
    change_store(tmp_path, statement.format(secret=secret))
    for path in tmp_path.rglob("*.parquet"):  # Read again, they would fire the trigger.
        os.utime(path, (0, 0))
    with Store.open([tmp_path]) as store:
        assert "of another program" in store.note
        assert store.ingest().added == 5
        assert store.quarantine() == []


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE quarantine; CREATE TABLE quarantine(path VARCHAR, size BIGINT, mtime_ns BIGINT, "
        "sha256 VARCHAR, reason VARCHAR AS (upper('computed'))); "
        "INSERT INTO quarantine VALUES ('p', 1, 1, '')",
        "DROP TABLE store_info; CREATE TABLE store_info(key VARCHAR, value VARCHAR AS (upper('computed'))); "
        "INSERT INTO store_info VALUES ('schema_version')",
        "ALTER TABLE quarantine DROP reason",
        "DROP TABLE quarantine",
    ],
    ids=["computed column", "computed version", "missing column", "missing table"],
)
def test_a_table_that_is_not_defined_as_in_a_store_is_never_read(tmp_path: Path, statement: str) -> None:
    change_store(tmp_path, statement)
    with Store.open([tmp_path]) as store:
        assert "is not of this version" in store.note
        assert store.ingest().added == 5
        assert store.quarantine() == []


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO quarantine SELECT 'p', 1, 1, '', repeat('a', 1000000) FROM range(30)",
        "INSERT INTO packets(path, hostnames) SELECT 'p', list_resize([''], 100000, '') FROM range(40)",
        "INSERT INTO packets(path, hostnames) SELECT 'p', [repeat('a', 1000000)] FROM range(30)",
        "INSERT INTO pace_samples(step) SELECT 1 FROM range(1000000); CREATE SCHEMA z; "
        "CREATE TABLE z.pace_samples(a INT)",
    ],
    ids=["texts", "lists", "texts in lists", "rows"],
)
def test_a_store_that_is_much_larger_than_its_file_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """Equal values take next to nothing in a file, and all memory on a page."""
    monkeypatch.setattr(opening, "_LEAST_EXPANDED_BYTES", 20_000_000)
    monkeypatch.setattr(opening, "_EXPANSION", 1)
    put_run(tmp_path)
    with Store.open([tmp_path]) as store:
        store.ingest()
        path = store.path
    assert path is not None
    with Store.open([tmp_path]) as store:
        assert store.note == ""
    with duckdb.connect(path) as database:
        database.execute(statement)
    with Store.open([tmp_path]) as store:
        assert "holds more than" in store.note
        assert store.ingest().added == 5
        assert store.quarantine() == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE windows SET started_at = '290000-01-01'",
        "UPDATE windows SET ended_at = 'infinity'",
        "UPDATE windows SET diagnosis = NULL",
        "UPDATE windows SET step_mean_ns = NULL",
        "UPDATE windows SET step_mean_ns = 1e300",
        "UPDATE windows SET step_noise = [0, 1, 1, 0, 0]",
        "UPDATE windows SET step_noise = [9]",
        "UPDATE windows SET aim_stage = NULL, aim_rank = 1",
        "UPDATE run_references SET noise = [9]",
        "UPDATE run_references SET noise = [NULL, 1, 1, 0, 0]",
        "UPDATE run_references SET noise = [1e300, 1, 1, 0, 0]",
        "UPDATE run_references SET between_ns = 1e308",
        "UPDATE stages SET delta_ns = 'nan'",
        "UPDATE packets SET path = NULL",
    ],
)
def test_a_store_with_a_value_that_no_window_can_have_is_built_again(tmp_path: Path, statement: str) -> None:
    change_store(tmp_path, statement)
    with Store.open([tmp_path]) as store:
        assert "a value that no window can have" in store.note
        assert store.ingest().added == 5


def test_a_view_in_the_place_of_the_version_is_never_run(tmp_path: Path) -> None:
    with Store.open([tmp_path]) as store:
        path = store.path
    assert path is not None
    with duckdb.connect(path) as database:
        database.execute("ALTER TABLE store_info RENAME TO other; CREATE SCHEMA elsewhere")
        database.execute("CREATE TABLE elsewhere.store_info AS SELECT 1 AS key")
        database.execute("CREATE VIEW store_info AS SELECT * FROM other")
    with pytest.raises(StoreError, match="tables of its own"):
        Store.open([tmp_path])


@pytest.mark.parametrize("text", ["{}", "[1]", "[" * 5_000 + "]" * 5_000, '"x"'])
def test_a_store_with_a_foreign_diagnosis_is_built_again_once_it_is_read(tmp_path: Path, text: str) -> None:
    change_store(tmp_path, f"UPDATE windows SET diagnosis = '{text}'")
    with Store.open([tmp_path]) as store:
        assert not store.ingest().added
        with pytest.raises(DamagedStoreError, match="delete the store, which is built again"):
            store.diagnoses("run")
        store.recover(is_damaged=True)
        assert store.ingest().added == 5
        assert [each.window for each in store.diagnoses("run")] == [0, 1, 2, 3, 4]
        assert store.path is not None
        assert store.path.with_name("store.duckdb.unreadable").exists()
