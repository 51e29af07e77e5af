"""``sfapp run`` and ``sfapp aggregate`` with a bucket for packets."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfapp.cli.launch_config import AggregatorAddress
from sfapp.cli.live_services import KEYS_VARIABLE, STREAM_VARIABLE, LiveOptions, keys_path
from sfapp.errors import RunError
from sfapp.packets.spool import SPOOL_VARIABLE
from sfapp.storage import location
from tests.commands import run_sfapp
from tests.storage.bucket_jobs import numbers_in, waiting_in
from tests.storage.object_server import Bucket
from tests.stream.streams import CLI, StreamProcess, free_port, recorder, train


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(SPOOL_VARIABLE, str(tmp_path / "spool"))
    for name in (STREAM_VARIABLE, KEYS_VARIABLE):  # The command sets them in this process.
        monkeypatch.setenv(name, "")
    return tmp_path / "spool"


@pytest.mark.parametrize("live", ["--no-live", "--live"])
def test_a_script_is_recorded_into_a_bucket_without_changing_it(
    bucket: Bucket, tmp_path: Path, spool: Path, live: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "model = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(6):\n"
        "    model(torch.ones(1, 2)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    url = f"{bucket.url}/packets"
    given = (
        "--out",
        url,
        "--run-id",
        "run",
        "--window-steps",
        3,
        "--storage-option",
        "region=us-east-1",
        live,
    )
    ended = run_sfapp("run", *given, script)
    assert ended.returncode == 0, ended.stderr
    assert f"2 windows in {url}/run" in ended.stderr
    assert f"sfapp serve {url}" in ended.stderr
    assert numbers_in(url) == [0, 1]
    refused = run_sfapp("run", "--ui", *given, script)
    assert "--ui needs a folder for packets" in refused.stderr
    assert waiting_in(spool) == []


def test_the_aggregator_command_puts_packets_into_the_bucket(
    bucket: Bucket, tmp_path: Path, spool: Path
) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with StreamProcess("-c", CLI, "aggregate", bucket.url, "--listen", endpoint) as process:
        process.ready()
        with recorder(tmp_path, endpoint) as perf:
            train(perf, 25)
        assert perf.failures == ()
        process.stop()
    assert numbers_in(bucket.url) == [0, 1, 2]
    assert waiting_in(spool) == []


def test_keys_of_several_nodes_are_not_put_into_a_bucket(bucket: Bucket) -> None:
    options = LiveOptions(
        out=location(bucket.url),
        storage=(),
        nodes=2,
        aggregator=AggregatorAddress("node-0", None),
        port=1,
        relay_port=None,
        ui_port=None,
        standstill_after=30.0,
    )
    with pytest.raises(RunError, match="set SFAPP_STREAM_KEYS on all nodes"):
        keys_path(options)
