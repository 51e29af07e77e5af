"""Every surface reads packets from a bucket, with the results of a local folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sfapp
from sfapp.operators import operators_of
from sfapp.packets import operators_path, write_operators
from tests.commands import run_sfapp
from tests.storage.object_server import PAGE, SECRET, Bucket
from tests.store.jobs import SLOW, put, put_part, put_run, window


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, of which one lost ranks in a window and has operator events, and a file that is no packet."""
    root = tmp_path_factory.mktemp("packets")
    put_run(root, "slow")
    put_run(root, "a%2Fb = ü", count=PAGE)
    for rank in (0, 1, 3):
        put_part(root, window("slow", 5), rank)
    events = operators_of(window("slow", 2, extra=SLOW))
    write_operators(events, "slow", 2, operators_path(root, "slow", 2))
    (root / "slow" / "no packet.parquet").write_bytes(b"nothing")
    (root / ".sfapp").mkdir()
    (root / ".sfapp" / "hidden.parquet").write_bytes(b"nothing")
    return root


def without_paths(text: str, root: object) -> object:
    return json.loads(text.replace(str(root), "ROOT"))


def test_commands_print_the_same_of_a_bucket_as_of_a_folder(packets: Path, bucket: Bucket) -> None:
    url = bucket.upload(packets)
    for command in (["analyze", "--json"], ["validate", "--json"]):
        local, remote = run_sfapp(*command, packets), run_sfapp(*command, url)
        assert (remote.returncode, remote.stderr) == (local.returncode, local.stderr)
        assert without_paths(remote.stdout, url) == without_paths(local.stdout, packets)
        assert ('"kair":' in remote.stdout) == (command[0] == "analyze")
    local = run_sfapp("compare", *(packets / "slow" / number for number in "12"), "--json")
    remote = run_sfapp("compare", f"{url}/slow/1", f"{url}/slow/2", "--json")
    assert json.loads(remote.stdout)["changes"] == json.loads(local.stdout)["changes"]
    assert json.loads(remote.stdout)["sides"] == [f"{url}/slow/1", f"{url}/slow/2"]


def test_a_report_and_an_export_are_made_from_a_bucket(packets: Path, bucket: Bucket, tmp_path: Path) -> None:
    url = bucket.upload(packets)
    made = run_sfapp("report", url, "--window", "slow/2", "-o", tmp_path / "report.md")
    assert made.returncode == 0, made.stderr
    assert f"sfapp report {url} --window slow/2" in (tmp_path / "report.md").read_text()
    made = run_sfapp("export", "perfetto", url, "--window", "slow/2", "-o", tmp_path / "slice.zip")
    assert made.returncode == 0, made.stderr


def test_a_single_object_is_a_packet_file(packets: Path, bucket: Bucket) -> None:
    url = bucket.upload(packets)
    document = json.loads(run_sfapp("analyze", f"{url}/slow/00000002.parquet", "--json").stdout)
    assert [found["window"] for found in document["windows"]] == [2]
    missing = run_sfapp("analyze", f"{url}/nowhere")
    assert missing.returncode == 2
    assert f"no such file or folder: '{url}/nowhere'" in missing.stderr


def test_a_store_of_a_bucket_follows_its_packets(packets: Path, bucket: Bucket, tmp_path: Path) -> None:
    url = bucket.upload(packets)
    with sfapp.open(url) as opened:
        assert opened.runs["windows"].sort().to_list() == [6, PAGE]
        assert opened.quarantined["name"].to_list() == [f"{url}/slow/no packet.parquet"]
        assert opened.window("slow", 2).diagnosis.aim is not None
        # A packet is added, replaced, removed
        new = put(tmp_path / "new", window("slow", 6))
        bucket.put("packets/slow/00000006.parquet", new.read_bytes())
        assert opened.refresh().added == 1
        other = put(tmp_path / "other", window("slow", 6, seed=99))
        bucket.put("packets/slow/00000006.parquet", other.read_bytes() + b"")
        bucket.delete("packets/slow/00000001.parquet")
        report = opened.refresh()
        assert report.removed == 1
        assert "00000001" not in str(opened.store.sources("slow", 6))


def test_options_of_the_command_replace_the_environment(
    packets: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = bucket.upload(packets)
    for name in bucket.proxy.environment:
        monkeypatch.delenv(name)
    options = (
        *("--storage-option", f"endpoint={bucket.proxy.environment['AWS_ENDPOINT_URL']}"),
        *("--storage-option", "allow_http=true", "--storage-option", "region=us-east-1"),
        *("--storage-option", "access_key_id=abcdefgh", "--storage-option", f"secret_access_key={SECRET}"),
    )
    found = run_sfapp("validate", f"{url}/slow/00000002.parquet", *options)
    assert found.stdout == "1 file checked: no faults\n", found.stderr
    wrong = run_sfapp("validate", url, "--storage-option", SECRET)
    assert wrong.returncode == 2
    assert "storage option 1 is not KEY=VALUE" in wrong.stderr
    unknown = run_sfapp("validate", url, "--storage-option", f"no_such_key={SECRET}")
    assert unknown.returncode == 2
    assert "no_such_key" in unknown.stderr
    assert SECRET not in wrong.stderr + unknown.stderr
