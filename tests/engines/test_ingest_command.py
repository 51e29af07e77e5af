"""``sfapp ingest`` fills a store, on this machine or on a cluster that it starts."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sfapp.cli import engine_options
from sfapp.engines import ENGINES, packet_reader
from sfapp.errors import EngineError
from tests.commands import run_sfapp

SAMPLE = Path(__file__).parents[2] / "sample_data" / "packets"


def needs_dask() -> None:
    pytest.importorskip("distributed", reason="Dask is not installed", exc_type=ImportError)


def dask_processes() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if "spawn_main" in " ".join(child.cmdline())
    ]


def test_packets_are_read_once_and_the_store_can_be_served(tmp_path: Path) -> None:
    store = tmp_path / "fleet.duckdb"
    first = run_sfapp("ingest", SAMPLE, "--to", store)
    assert first.returncode == 0, first.stderr
    assert "1 set aside, 0 removed: 21 windows in" in first.stdout
    second = run_sfapp("ingest", SAMPLE, "--to", store)
    assert second.stdout.startswith("0 packets read")
    assert "gpt-small-ddp" in run_sfapp("fleet", SAMPLE, "--db", store).stdout


def test_a_cluster_is_started_on_this_machine_if_none_is_given_and_ends_with_the_command(
    tmp_path: Path,
) -> None:
    needs_dask()
    result = run_sfapp("ingest", SAMPLE, "--to", tmp_path / "fleet.duckdb", "--engine", "dask", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["windows"] == 21
    deadline = time.monotonic() + 20
    while dask_processes():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path) -> None:
    needs_dask()
    address = "tcp://127.0.0.1:1"
    result = run_sfapp(
        *("ingest", SAMPLE, "--to", tmp_path / "fleet.duckdb", "--engine", "dask", "--address", address)
    )
    assert result.returncode == 2
    assert f"cannot connect to Dask at {address}" in result.stderr


def test_a_ray_that_does_not_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def fails(**_: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", fails)
    result = run_sfapp("ingest", tmp_path, "--to", tmp_path / "store.duckdb", "--engine", "ray")

    assert result.returncode == 2
    assert result.stderr == "sfapp: cannot connect to Ray: The current node timed out during startup.\n"


def test_an_address_needs_an_engine_and_an_engine_has_a_known_name(tmp_path: Path) -> None:
    result = run_sfapp("ingest", SAMPLE, "--to", tmp_path / "fleet.duckdb", "--address", "127.0.0.1:1")
    assert (result.returncode, result.stderr) == (2, "sfapp: an address is for the engines ray and dask\n")
    with pytest.raises(EngineError, match="no engine 'spark'; there are: local, ray, dask"):
        packet_reader("spark").__enter__()
    assert engine_options.ENGINES == ENGINES


def test_a_scheduler_that_ends_is_named(tmp_path: Path) -> None:
    needs_dask()
    distributed = importlib.import_module("distributed")
    from sfapp.engines.dask_cluster import DaskCluster

    # Given a task that waits for a worker, and a scheduler that is killed
    known = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "dask", "scheduler", "--no-dashboard"]
    command += ["--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(known)]
    scheduler = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not known.exists() or not known.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with distributed.Client(json.loads(known.read_text())["address"]) as client:
            cluster = DaskCluster(client)
            assert cluster.slots == 1
            task = cluster.submit(str, 1)
            assert cluster.finished([task], 0.1) == ()
            scheduler.kill()
            # Then waiting for the task ends with an error that says so, and cancelling it does nothing
            with pytest.raises(EngineError, match="the connection to Dask was lost"):
                cluster.finished([task], 30)
            with pytest.raises(EngineError, match="the connection to Dask was lost"):
                cluster.result(task)
            cluster.cancel(task)
    finally:
        scheduler.kill()
        scheduler.wait()
