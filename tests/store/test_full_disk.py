"""A full disk under the store: reported while it lasts, and over once there is room again."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfapp.packets import packet_path, write_packet
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.builders import ddp_job, window_of

MIB = 2**20


def write_windows(root: Path, first: int, count: int) -> None:
    for number in range(first, first + count):
        durations = ddp_job(ranks=8, steps=20, seed=number)
        window = window_of(durations, run_id="run", window=number, world_size=8)
        write_packet(window, packet_path(root, "run", number))


def stored_packets(root: Path) -> Path:
    """Return a folder of packets with a store, which has no open log into which it could still write."""
    packets = root / "packets"
    write_windows(packets, 0, 4)
    with Store.open([packets]) as store:
        store.ingest()
    return packets


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def until_kind(workspace: Workspace, kind: str, seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.05)):
        if workspace.status().kind == kind:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{workspace.status()} after {seconds} s")


def test_the_app_goes_on_once_a_full_disk_has_room_again(small_disk: Path, tmp_path: Path) -> None:
    packets = tmp_path / "packets"
    write_windows(packets, 0, 4)

    async def follow() -> None:
        store = Store.open([packets], db=small_disk / "store.duckdb")
        workspace = Workspace(store, [packets])
        try:
            workspace.start()
            await until_kind(workspace, "live")
            # given a disk that another program fills
            filler = small_disk / "filler"
            with filler.open("wb") as file:
                try:
                    while True:
                        file.write(bytes(MIB // 16))
                        file.flush()
                except OSError:
                    pass
            # when packets arrive that the store has no room for
            await asyncio.to_thread(write_windows, packets, 4, 200)
            await until_kind(workspace, "failed")
            assert workspace.status().message
            # then they are in the store soon after there is room
            filler.unlink()
            deadline = time.monotonic() + 60
            while len((await asyncio.to_thread(store.window_numbers, ["run"]))["run"]) < 204:
                assert time.monotonic() < deadline, workspace.status()
                await asyncio.sleep(0.05)
            await until_kind(workspace, "live")  # it may be live between two packets, too
            assert store.diagnosis("run", 203).window == 203
        finally:
            await asyncio.to_thread(workspace.close)
            store.close()

    asyncio.run(follow())


def test_the_app_goes_on_after_the_folder_of_its_store_was_removed(tmp_path: Path) -> None:
    packets = stored_packets(tmp_path)

    async def follow() -> None:
        store = Store.open([packets])
        workspace = Workspace(store, [packets])
        try:
            workspace.start()
            await until_kind(workspace, "live")
            shutil.rmtree(packets / ".sfapp")
            await asyncio.to_thread(write_windows, packets, 4, 4)
            deadline = time.monotonic() + 30
            while len((await asyncio.to_thread(store.window_numbers, ["run"])).get("run", ())) < 8:
                assert time.monotonic() < deadline, workspace.status()
                await asyncio.sleep(0.05)
            await until_kind(workspace, "live")
            assert (packets / ".sfapp" / "store.duckdb").exists()
        finally:
            await asyncio.to_thread(workspace.close)
            store.close()

    asyncio.run(follow())


@pytest.mark.parametrize("recovers", [True, False])
def test_the_reason_why_a_store_cannot_be_opened_again_is_shown_until_it_can(
    recovers: bool, tmp_path: Path
) -> None:
    packets = stored_packets(tmp_path)

    async def follow() -> None:
        store = Store.open([packets])
        workspace = Workspace(store, [packets])
        folder = packets / ".sfapp"
        try:
            workspace.start()
            await until_kind(workspace, "live")
            # given a folder of the store that was removed, and cannot be made again
            shutil.rmtree(folder)
            folder.touch()
            await asyncio.to_thread(write_windows, packets, 4, 4)
            deadline = time.monotonic() + 30
            while "cannot be opened: File exists" not in workspace.status().message:
                assert time.monotonic() < deadline, workspace.status()
                await asyncio.sleep(0.01)
            shown = {workspace.status().message for _ in range(100) if not await asyncio.sleep(0.03)}
            assert len(shown) == 1, shown
            if not recovers:
                return
            folder.unlink()
            await until_kind(workspace, "live")
            assert len((await asyncio.to_thread(store.window_numbers, ["run"]))["run"]) == 8
        finally:
            await asyncio.to_thread(workspace.close)
            store.close()

    asyncio.run(follow())


# Ingests under a limit of the size of files, which is lifted after the first failure.
LIMITED = """
import resource, sys
from pathlib import Path
from sfapp.errors import StoreError
from sfapp.store import Store

packets, db, most = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
with Store.open([packets], db=db) as store:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    for _ in range(3):
        try:
            store.ingest()
        except StoreError as error:
            print(error, file=sys.stderr)
            try:
                store.recover()
            except StoreError as error:
                print(error, file=sys.stderr)
        else:
            raise SystemExit("the limit was not reached")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    store.recover()
    store.ingest()
    print(len(store.window_numbers(["run"])["run"]))
with Store.open([packets], db=db) as store:
    print(len(store.window_numbers(["run"])["run"]), store.note)
"""


@pytest.mark.parametrize("most", [4096, 300_000, MIB])
def test_a_store_that_could_not_be_written_is_usable_again(most: int, tmp_path: Path) -> None:
    packets = tmp_path / "packets"
    write_windows(packets, 0, 60)

    result = subprocess.run(
        [sys.executable, "-c", LIMITED, str(packets), str(tmp_path / "store.duckdb"), str(most)],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["60", "60"], result.stdout + result.stderr
