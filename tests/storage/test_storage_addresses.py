"""Addresses of packets, and texts without their credentials."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sfapp.errors import StorageError
from sfapp.storage import ObjectPath, location, path_in, redacted, resolved, storage_of
from sfapp.storage.object_errors import fault_of
from sfapp.store import Store
from sfapp.store.lock import without_secrets
from tests.commands import run_sfapp

SECRET = "s3cr3t-value"


@pytest.mark.parametrize(
    ("text", "shown", "name", "parent"),
    [
        ("s3://bucket/a%2Fb/00000001.parquet", None, "00000001.parquet", "s3://bucket/a%2Fb"),
        ("S3://bucket/prefix/", "s3://bucket/prefix", "prefix", "s3://bucket"),
        ("s3://bucket", None, "", "s3://bucket"),
        ("gs://bucket/ü", None, "ü", "gs://bucket"),
        ("az://container/prefix", None, "prefix", "az://container"),
        ("https://host:8443/a%20b/c.parquet", None, "c.parquet", "https://host:8443/a%20b"),
        (
            f"https://user:{SECRET}@host/c.parquet?sig={SECRET}#x",
            "https://host/c.parquet",
            "c.parquet",
            "https://host",
        ),
    ],
)
def test_an_address_is_shown_without_credentials(
    text: str, shown: str | None, name: str, parent: str
) -> None:
    path = location(text, {"account_name": "a", "access_key": "YQ=="} if text[:2] == "az" else None)
    assert isinstance(path, ObjectPath)
    assert (str(path), path.name, str(path.parent)) == (shown or text, name, parent)
    assert path_in([path], str(path)) == path
    assert SECRET not in repr(path)


def test_paths_of_files_are_local(tmp_path: Path) -> None:
    assert location(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    assert location("file://localhost/a") == Path("/a")
    assert location("packets") == Path("packets")
    assert sorted(
        [location("s3://b/a"), Path("z"), location("s3://a/z"), Path("a")], key=lambda path: path
    ) == [
        *(Path("a"), Path("z")),
        *(location("s3://a/z"), location("s3://b/a")),
    ]
    assert storage_of(tmp_path) is storage_of(Path("/"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"s3://key:{SECRET}@bucket/prefix", "an address of a bucket has no user"),
        (f"s3://bucket/prefix?secret={SECRET}", "an address of a bucket has no user"),
        ("s3:///prefix", "names no bucket"),
        (
            f"ftp://user:{SECRET}@host/file",
            "packets are read from folders and from s3://, gs://, az://, file://",
        ),
        (f"https://user:{SECRET}@host/folder/?{SECRET}", "a web server lists no files"),
        ("file://machine/folder", "names another machine"),
        (f"https://user:{SECRET}@[host/a", "https://HIDDEN"),
    ],
)
def test_a_wrong_address_is_refused_without_its_credentials(text: str, reason: str) -> None:
    with pytest.raises(StorageError) as refused:
        location(text)
    assert reason in str(refused.value)
    assert SECRET not in str(refused.value)


def test_credentials_are_removed_from_texts_and_commands() -> None:
    assert redacted(f"no https://u:{SECRET}@h:1/p?q={SECRET}, or s3://b/k") == "no https://h:1/p or s3://b/k"
    command = ["sfapp", "serve", f"https://u:{SECRET}@h/p?{SECRET}", "--storage-option", f"secret={SECRET}"]
    command += [f"--storage-option=key={SECRET}", "--token", SECRET, f"--token={SECRET}", "--port", "0"]
    assert without_secrets(command) == [
        *("sfapp", "serve", "https://h/p", "--storage-option", "HIDDEN", "--storage-option=HIDDEN"),
        *("--token", "HIDDEN", "--token=HIDDEN", "--port", "0"),
    ]


def test_a_reason_is_one_line_without_values_of_secrets() -> None:
    error = OSError(
        f"Error performing GET https://h/b?sig={SECRET} in 1.2s - error: token {SECRET}\nDebug: …"
    )
    fault = fault_of(error, [SECRET])
    assert fault.reason == "error: token HIDDEN"
    assert fault.may_pass
    absent = fault_of(
        OSError("Error performing PUT http://169.254.169.254/latest/api/token in 1s - timed out")
    )
    assert absent.reason.startswith("no credentials found")
    assert not absent.may_pass


def test_an_error_that_holds_a_server_s_long_answer_is_cut_before_it_is_examined() -> None:
    # The time to search for the parts of an error grows with the square of its length.
    fault = fault_of(OSError("Error performing a request in 1" * 20_000))
    assert fault.reason.startswith("Error performing a request")
    assert len(fault.reason) <= 300


def test_the_extra_that_an_address_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    ended = run_sfapp("analyze", "s3://bucket/packets")
    assert (ended.returncode, ended.stderr) == (
        2,
        "sfapp: s3://bucket needs obstore: pip install 'sfapp[s3]'\n",
    )


def test_a_path_in_a_home_that_does_not_exist_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = Path("~no-such-user/x")
    with pytest.raises(StorageError, match=f"'{path}' is no place"):
        resolved(path)
    with pytest.raises(StorageError, match=f"'{path}' is no place"), Store.open([tmp_path], db=path):
        pass
