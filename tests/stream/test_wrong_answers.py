"""An aggregator that answers for what was never sent cannot make a rank drop it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from sfapp.stream import StreamOptions
from sfapp.stream.message_parser import decode_from_rank
from sfapp.stream.messages import VERSION, Ack, Resend, Steps, encode
from tests.stream.streams import LOOPBACK, recorder, train, until, windows_in


class WrongAggregator:
    """Peer that answers as the test says, over a real socket."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.endpoint: str = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.steps = 0
        self.route, self.incarnation = b"", ""

    def receive(self, seconds: float = 5.0) -> None:
        """Take messages until there are none for a while."""
        while self._socket.poll(round(seconds * 1000)):
            self.route, frame = self._socket.recv_multipart()
            message = decode_from_rank(frame)
            self.incarnation = message.incarnation
            if isinstance(message, Steps):
                self.steps += 1
            seconds = 0.5

    def answer(self, kind: type[Ack] | type[Resend], **fields: Any) -> None:
        message = kind(v=VERSION, rank=0, incarnation=self.incarnation, **fields)
        self._socket.send_multipart([self.route, encode(message)])

    def answer_raw(self, kind: type[Ack], **fields: Any) -> None:
        """Send an answer whose fields are out of bounds."""
        valid = kind(v=VERSION, rank=0, incarnation=self.incarnation, up_to_sequence=0)
        changed = msgspec.msgpack.decode(encode(valid)) | fields
        self._socket.send_multipart([self.route, msgspec.msgpack.encode(changed)])


@contextmanager
def wrong_aggregator() -> Iterator[WrongAggregator]:
    context: zmq.Context[Any] = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.bind(LOOPBACK)
    try:
        yield WrongAggregator(socket)
    finally:
        socket.close(linger=0)
        context.term()


def steps_of(root: Path) -> list[int]:
    return [step for window in windows_in(root) for step in window.step_N.tolist()]


@pytest.mark.parametrize("beyond", [100, 2**62])
def test_what_was_never_sent_is_kept_whatever_is_acknowledged(beyond: int, tmp_path: Path) -> None:
    with wrong_aggregator() as peer:
        options = StreamOptions(endpoint=peer.endpoint, batch_seconds=1.5)
        perf = recorder(tmp_path, options, output=tmp_path / "left", timeout=1.0)
        train(perf, 5)
        peer.receive()
        before = peer.steps
        train(perf, 25)  # sent with the next batch only
        peer.answer(Ack, up_to_sequence=beyond)
        until(lambda: any("answered for element" in failure for failure in perf.failures))
        peer.receive()
        assert peer.steps > before
        perf.close()

    assert steps_of(tmp_path / "left") == list(range(30))
    assert sum("answered for element" in failure for failure in perf.failures) == 1


def test_a_request_for_what_was_never_sent_does_not_end_the_stream(tmp_path: Path) -> None:
    with wrong_aggregator() as peer:
        perf = recorder(tmp_path, peer.endpoint, output=tmp_path / "left", timeout=1.0)
        train(perf, 5)
        peer.receive()
        peer.answer(Resend, sequence=10**6)
        until(lambda: any("answered for element" in failure for failure in perf.failures))
        before = peer.steps
        train(perf, 5)
        peer.receive()
        assert peer.steps > before
        perf.close()


@pytest.mark.parametrize("wrong", [-1, -(2**62), 2**63 - 1, 2**64 - 1])
def test_an_impossible_acknowledgement_is_noted_and_changes_nothing(wrong: int, tmp_path: Path) -> None:
    with wrong_aggregator() as peer:
        perf = recorder(tmp_path, peer.endpoint, output=tmp_path / "left", timeout=1.0)
        train(perf, 10)
        peer.receive()
        peer.answer_raw(Ack, up_to_sequence=wrong)
        until(lambda: len(perf.failures))
        perf.close()

    assert steps_of(tmp_path / "left") == list(range(10))
