"""What the aggregator says in its log, and what it takes of the system."""

from __future__ import annotations

import logging
import resource
from pathlib import Path

import pytest

from sfapp.stream import aggregator as aggregator_module
from sfapp.stream.messages import Ack
from tests.stream.streams import ManualRank, StreamProcess, aggregating, replaced_by_a_file, until


def test_a_disk_that_takes_nothing_is_named_in_the_log_and_so_is_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregator_module, "_WORKS_SECONDS", 1.5)
    caplog.set_level(logging.WARNING, logger="sfapp")
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]))
        until(lambda: aggregator.snapshot().ranks and len(aggregator.snapshot().ranks[0].row_NC))
        with replaced_by_a_file(tmp_path / "run"):
            peer.send(peer.closed(2, 1))
            until(lambda: aggregator.counts.failed > 2)
            assert [
                line for line in caplog.messages if "packets cannot be written" in line
            ] == caplog.messages
            assert len(caplog.messages) == 1
        until(lambda: "packets are written again" in caplog.messages)
        assert len(caplog.messages) == 2


def test_a_disk_that_takes_nothing_of_a_new_run_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregator_module, "_WORKS_SECONDS", 0.5)
    caplog.set_level(logging.WARNING, logger="sfapp")
    (tmp_path / "run").touch()
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        # When a rank connects, again and again
        until(lambda: peer.send(peer.hello()) or aggregator.counts.failed > 2)
        # Then its rows wait with a reason
        until(lambda: caplog.messages)
        assert caplog.messages[0].startswith("packets cannot be written, so ranks keep their rows: ")
        assert not aggregator.snapshot().ranks
        # And arrive once there is room
        (tmp_path / "run").unlink()
        peer.send(peer.hello(), peer.opened(0), peer.steps(1, [0]), peer.closed(2, 1))
        assert peer.receive_type(Ack).up_to_sequence == 3
        until(lambda: "packets are written again" in caplog.messages)
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("command", [("aggregate", "packets"), ("relay", "tcp://127.0.0.1:9")])
def test_a_server_may_open_as_many_connections_as_the_system_allows(
    tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard})); "
        "from sfapp.cli import main; main()"
    )
    with StreamProcess("-c", code, *command, "--listen", "tcp://127.0.0.1:*").ready() as server:
        soft, _ = server.open_files()
    assert soft == min(hard, 2**18)
