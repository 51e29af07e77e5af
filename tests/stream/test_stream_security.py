"""Clients without keys cannot read or write, and invalid messages stop no other stream."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfapp.errors import StreamError
from sfapp.stream import Aggregator, Keys, Relay, StreamOptions
from sfapp.stream.frames import MOST_FRAMES, receive_frames
from sfapp.stream.live_state import OTHERS, RankStates
from sfapp.stream.messages import MAX_MESSAGE_BYTES, Ack, Message, encode
from tests.stream.streams import (
    LOOPBACK,
    ManualRank,
    aggregating,
    free_port,
    recorder,
    running,
    train,
    until,
    windows_in,
)

ANYWHERE = "tcp://0.0.0.0:*"


def here(endpoint: str) -> str:
    return endpoint.replace("0.0.0.0", "127.0.0.1")


def goes_through(aggregator: Aggregator, incarnation: str, keys: Keys | None = None) -> bool:
    """Whether a window of a new client is acknowledged."""
    with ManualRank(here(aggregator.endpoint), 0, incarnation, keys) as peer:
        peer.send(peer.hello(run_id=incarnation), peer.opened(0), peer.steps(1, [0]), peer.closed(2, 1))
        answer = peer.receive(5.0 if keys is None or keys == KEYS else 0.5)
        return isinstance(answer, Ack) and answer.up_to_sequence == 3


KEYS = Keys.make()


# ---- keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "endpoint", [ANYWHERE, "tcp://*:0", "tcp://[::]:0", "tcp://node-7:0", "tcp://eth0:0"]
)
def test_addresses_beyond_this_machine_require_keys(tmp_path: Path, endpoint: str) -> None:
    with pytest.raises(StreamError, match="without keys"):
        Aggregator(tmp_path, endpoint)
    with pytest.raises(StreamError, match="without keys"):
        Relay(endpoint, "tcp://127.0.0.1:1")
    with pytest.raises(StreamError, match="without keys"):
        Relay(LOOPBACK, endpoint)
    with pytest.raises(StreamError, match="without keys"):
        recorder(tmp_path, StreamOptions(endpoint=endpoint))


def test_rows_pass_a_relay_with_the_sessions_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFAPP_STREAM_KEYS", KEYS.for_clients().text())
    with aggregating(tmp_path / "packets", endpoint=ANYWHERE, keys=KEYS) as aggregator:
        keys = KEYS.for_clients()
        with (
            running(Relay(LOOPBACK, here(aggregator.endpoint), keys)) as relay,
            recorder(tmp_path, relay.endpoint) as perf,
        ):
            train(perf, 15)
    assert len(windows_in(tmp_path / "packets")) == 2


def test_a_recorder_accepts_keys_as_an_option(tmp_path: Path) -> None:
    with aggregating(tmp_path / "packets", endpoint=ANYWHERE, keys=KEYS) as aggregator:
        options = StreamOptions(endpoint=here(aggregator.endpoint), keys=KEYS.for_clients())
        with recorder(tmp_path, options) as perf:
            train(perf, 5)
    assert len(windows_in(tmp_path / "packets")) == 1


def test_a_relay_with_keys_refuses_other_local_clients(tmp_path: Path) -> None:
    with (
        aggregating(tmp_path, endpoint=ANYWHERE, keys=KEYS) as aggregator,
        running(Relay(LOOPBACK, here(aggregator.endpoint), KEYS.for_clients())) as relay,
        ManualRank(relay.endpoint) as neighbour,
    ):
        neighbour.send(neighbour.hello())
        assert neighbour.receive(0.5) is None
        assert relay.counts.up == 0


def test_clients_without_the_sessions_key_are_refused(tmp_path: Path) -> None:
    server = Keys.make()
    impostor = Keys(
        KEYS.server_public, client_public=server.client_public, client_secret=server.client_secret
    )
    with aggregating(tmp_path, endpoint=ANYWHERE, keys=KEYS) as aggregator:
        with ManualRank(here(aggregator.endpoint)) as open_peer:
            open_peer.send(open_peer.hello())
            assert open_peer.receive(0.5) is None
        assert not goes_through(aggregator, "knows the server alone", impostor)
        assert not goes_through(aggregator, "knows another server", server)
        assert aggregator.snapshot().messages == 0
        assert goes_through(aggregator, "belongs here", KEYS)


def test_a_client_refuses_another_server(tmp_path: Path) -> None:
    with aggregating(tmp_path / "packets", endpoint=ANYWHERE, keys=Keys.make()) as impostor:
        options = StreamOptions(endpoint=here(impostor.endpoint), keys=KEYS.for_clients())
        perf = recorder(tmp_path, options, timeout=0.5)
        train(perf, 5)
        perf.close()
        assert impostor.snapshot().messages == 0
    assert len(perf.written) == 1


def test_only_the_owner_can_read_a_key_file(tmp_path: Path) -> None:
    path = tmp_path / "session.keys"
    KEYS.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Keys.load(path) == KEYS
    with pytest.raises(StreamError, match="cannot write"):
        Keys.make().save(path)
    path.chmod(0o640)
    with pytest.raises(StreamError, match="other users can read"):
        Keys.load(path)


def test_a_file_without_keys_is_named(tmp_path: Path) -> None:
    path = tmp_path / "session.keys"
    path.write_text(KEYS.text()[:-9])
    path.chmod(0o600)
    with pytest.raises(StreamError, match=r"session\.keys' has invalid stream keys"):
        Keys.load(path)


def test_keys_that_another_user_has_written_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who put them there knows them, and could read and write the stream."""
    path = tmp_path / "session.keys"
    KEYS.save(path)
    if os.geteuid() == 0:
        os.chown(path, 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(StreamError, match="belong to another user"):
        Keys.load(path)
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
        assert Keys.load(path) == KEYS, "root on a file server that maps it"


def test_secrets_are_not_part_of_the_repr(tmp_path: Path) -> None:
    assert KEYS.client_secret not in repr(StreamOptions(endpoint=LOOPBACK, keys=KEYS))
    with pytest.raises(StreamError) as refusal:
        Keys.parse('{"server_public": "secret enough"}')
    assert "secret enough" not in str(refusal.value)


@pytest.mark.parametrize("wrong", ["'{}'", '"{}"', "\ufeff{}", "keys={}"])
def test_an_error_about_keys_in_the_environment_repeats_none(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of variables, as of Docker, keep quotes as they are."""
    monkeypatch.setenv("SFAPP_STREAM_KEYS", wrong.format(KEYS.text()))
    with pytest.raises(StreamError, match="invalid stream keys") as refused:
        Keys.from_environment()
    assert KEYS.client_secret not in str(refused.value)
    assert KEYS.server_secret not in str(refused.value)


def test_a_clients_keys_cannot_bind(tmp_path: Path) -> None:
    with pytest.raises(StreamError, match="for connecting only"):
        Aggregator(tmp_path, ANYWHERE, KEYS.for_clients())


def test_the_environment_can_name_a_key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    KEYS.save(tmp_path / "keys")
    monkeypatch.setenv("SFAPP_STREAM_KEYS", str(tmp_path / "keys"))
    assert Keys.from_environment() == KEYS
    monkeypatch.delenv("SFAPP_STREAM_KEYS")
    assert Keys.from_environment() is None


def test_an_address_in_use_is_reported(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, pytest.raises(StreamError, match="cannot listen on"):
        Aggregator(tmp_path, aggregator.endpoint)


def test_the_socket_of_another_process_is_not_replaced_but_one_that_was_left_is(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/ranks"
    left = socket.socket(socket.AF_UNIX)
    left.bind(f"{tmp_path}/ranks")
    left.close()
    with aggregating(tmp_path / "packets", endpoint=endpoint) as aggregator:
        with pytest.raises(StreamError, match="another process listens there"):
            Relay(endpoint, "tcp://127.0.0.1:1")
        with recorder(tmp_path, aggregator.endpoint) as perf:
            train(perf, 10)
    assert len(windows_in(tmp_path / "packets")) == 1


# ---- invalid messages ---------------------------------------------------------------------------


def test_invalid_messages_are_counted_by_peer_and_stop_no_other(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        for size in range(2000):
            peer.send(os.urandom(size % 200))
        until(lambda: sum(aggregator.snapshot().faults.get("127.0.0.1", {}).values()) == 2000)
        assert goes_through(aggregator, "honest")


def test_long_frames_are_counted_and_longer_ones_disconnected(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator:
        with ManualRank(aggregator.endpoint) as peer:
            peer.send(bytes(MAX_MESSAGE_BYTES + 1))
            until(lambda: aggregator.snapshot().faults == {"127.0.0.1": {"oversized": 1}})
        with ManualRank(aggregator.endpoint) as peer:
            peer.send(bytes(3 * MAX_MESSAGE_BYTES))
        assert goes_through(aggregator, "honest")
        assert aggregator.snapshot().messages == 5  # the longest was not even read


def test_messages_of_too_many_frames_are_dropped(tmp_path: Path) -> None:
    with aggregating(tmp_path) as aggregator, running(Relay(LOOPBACK, aggregator.endpoint)) as relay:
        context = zmq.Context()
        sockets = [context.socket(zmq.DEALER) for _ in range(2)]
        for socket, endpoint in zip(sockets, (aggregator.endpoint, relay.endpoint), strict=True):
            socket.connect(endpoint)
            socket.send_multipart([b"frame"] * 9)
        until(lambda: aggregator.snapshot().faults and relay.counts.dropped)
        for socket in sockets:
            socket.close(linger=0)
        context.term()


def test_a_relay_reports_that_it_forwards_no_other_relay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        aggregating(tmp_path) as aggregator,
        running(Relay(LOOPBACK, aggregator.endpoint)) as relay,
        running(Relay(LOOPBACK, relay.endpoint)) as further,
        ManualRank(further.endpoint) as peer,
    ):
        peer.send(*[peer.hello()] * 3)
        until(lambda: relay.counts.dropped == 3)
    (record,) = [each for each in caplog.records if "dropped" in each.getMessage()]
    assert "the newest is of another relay" in record.getMessage()


def test_of_a_message_of_many_frames_a_few_are_held_and_the_next_one_arrives_whole() -> None:
    with zmq.Context() as context, context.socket(zmq.PAIR) as sender, context.socket(zmq.PAIR) as receiver:
        receiver.bind("inproc://frames")
        sender.connect("inproc://frames")
        sender.send_multipart([b"frame"] * 20_000)
        sender.send_multipart([b"route", b"content"])
        assert len(receive_frames(receiver)) == MOST_FRAMES + 1
        assert [frame.bytes for frame in receive_frames(receiver)] == [b"route", b"content"]
        with pytest.raises(zmq.Again):
            receive_frames(receiver)


def test_a_peer_behind_a_relay_is_named(tmp_path: Path) -> None:
    with (
        aggregating(tmp_path) as aggregator,
        running(Relay(LOOPBACK, aggregator.endpoint)) as relay,
        ManualRank(relay.endpoint) as peer,
    ):
        peer.send(b"invalid")
        (name,) = until(lambda: aggregator.snapshot().faults)
    assert name.startswith("127.0.0.1, client ")


def messages_of(peer: ManualRank) -> list[Message]:
    return [peer.hello(), peer.opened(0), peer.steps(1, [0, 1]), peer.closed(3, 2)]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_invalid_stream_stops_no_other(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Send messages in any order, of any window, damaged anywhere."""
    root = tmp_path_factory.mktemp("packets")
    with aggregating(root) as aggregator, ManualRank(aggregator.endpoint, 0, "invalid") as peer:
        for _ in range(data.draw(st.integers(1, 12))):
            raw = bytearray(encode(data.draw(st.sampled_from(messages_of(peer)))))
            for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=3)):
                raw[place] = data.draw(st.integers(0, 255))
            peer.send(bytes(raw))
        assert goes_through(aggregator, "honest")
    windows_in(root)


def test_fault_counts_of_peers_are_bounded() -> None:
    live = RankStates(clock=lambda: 0.0)
    for peer in range(3000):
        live.count_fault(f"peer {peer}", "malformed", "x" * 10_000)
    snapshot = live.snapshot()
    assert len(snapshot.faults) <= 1001
    assert snapshot.faults[OTHERS]["malformed"] == 2000
    assert max(map(len, snapshot.last_fault.values())) <= 300


def test_a_port_can_be_chosen(tmp_path: Path) -> None:
    port = free_port()
    with Aggregator(tmp_path, f"tcp://127.0.0.1:{port}") as aggregator:
        assert aggregator.endpoint == f"tcp://127.0.0.1:{port}"


@pytest.mark.parametrize("key", ["é" * 40, "\x00" * 40, "~" * 40, "#" * 40, "a" * 39, "a" * 45, ""])
def test_a_key_that_is_none_is_refused_when_it_is_read(key: str) -> None:
    for name in ("server_public", "client_public", "client_secret"):
        text = msgspec.json.encode({**msgspec.to_builtins(KEYS), name: key})
        with pytest.raises(StreamError, match="invalid stream keys"):
            Keys.parse(text)
