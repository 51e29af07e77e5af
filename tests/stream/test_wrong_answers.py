"""An aggregator that answers for what was never sent cannot make a rank drop it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from sfapp.model.capture import CaptureRequest, RankCapture
from sfapp.stream import StreamOptions
from sfapp.stream.capture_mailbox import StreamCaptureMailbox
from sfapp.stream.message_parser import decode_from_rank
from sfapp.stream.messages import VERSION, Ack, CaptureAck, CaptureCommand, Resend, Steps, StreamHello, encode
from tests.job_ranks import rank_of
from tests.stream.streams import LOOPBACK, aggregating, recorder, train, until, windows_in


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

    def close(self) -> None:
        self._socket.close(linger=0)

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


ASKED_AT = datetime(2026, 11, 27, tzinfo=UTC)


def command(number: int, asked_at: datetime = ASKED_AT) -> CaptureCommand:
    """Return a request for the stacks of rank 0."""
    request = CaptureRequest(
        id=f"request-{number}",
        run_id="run",
        ranks=(0,),
        steps=0,
        kind="stacks",
        asked_at=asked_at,
    )
    return CaptureCommand(v=VERSION, rank=0, incarnation="a", request=request)


def test_requests_without_end_are_not_kept(tmp_path: Path) -> None:
    mailbox, rank = StreamCaptureMailbox("a", lambda: 0), rank_of(tmp_path)
    for number in range(5000):
        mailbox.receive(command(number))
    taken = mailbox.new_requests(rank)
    assert [each.id for each in taken] == [f"request-{number}" for number in range(32)]
    mailbox.receive(command(4999))  # The aggregator repeats what no rank has reported on.
    assert [each.id for each in mailbox.new_requests(rank)] == ["request-4999"]


@pytest.mark.parametrize("ahead", [-3600, 90])
def test_a_request_has_its_time_by_the_clock_of_the_rank(tmp_path: Path, ahead: int) -> None:
    mailbox, rank = StreamCaptureMailbox("a", lambda: -ahead * 10**9), rank_of(tmp_path)
    asked_at = datetime.now(UTC)
    mailbox.receive(command(0, asked_at))
    assert [each.asked_at for each in mailbox.new_requests(rank)] == [asked_at + timedelta(seconds=ahead)]


@pytest.mark.parametrize("asked_at", [datetime.min, datetime.max])
def test_a_request_of_any_time_is_taken(tmp_path: Path, asked_at: datetime) -> None:
    for mailbox in (StreamCaptureMailbox("a", lambda: -(10**12)), StreamCaptureMailbox("a", lambda: 10**12)):
        mailbox.receive(command(0, asked_at.replace(tzinfo=UTC)))
        assert len(mailbox.new_requests(rank_of(tmp_path))) == 1


def test_no_further_requests_are_taken_while_reports_are_not_acknowledged(tmp_path: Path) -> None:
    mailbox, rank = StreamCaptureMailbox("a", lambda: 0), rank_of(tmp_path)

    def answered() -> int:
        """Return how many of the next requests were answered."""
        count = 0
        for _ in range(1000):
            mailbox.receive(command(next(numbers)))
            for request in mailbox.new_requests(rank):
                mailbox.report(rank, request, RankCapture(rank=0, status="refused", why="busy"))
                count += 1
        return count

    numbers = itertools.count()
    assert answered() == 256
    assert answered() == 0
    assert len(list(mailbox.messages())) == 256
    mailbox.receive(CaptureAck(v=VERSION, rank=0, incarnation="a", number=256))
    assert answered() == 256


def test_a_report_that_was_never_sent_is_kept_whatever_is_acknowledged(tmp_path: Path) -> None:
    mailbox, rank = StreamCaptureMailbox("a", lambda: 0), rank_of(tmp_path)
    for number in range(2):
        mailbox.report(rank, command(number).request, RankCapture(rank=0, status="refused", why="busy"))
        mailbox.receive(CaptureAck(v=VERSION, rank=0, incarnation="a", number=2**62))
    assert [each.number for each in mailbox.messages()] == [0, 1]
    mailbox.receive(CaptureAck(v=VERSION, rank=0, incarnation="a", number=2**62))
    assert mailbox.is_empty


def test_a_stream_goes_on_behind_elements_that_were_acknowledged_by_another(tmp_path: Path) -> None:
    # Given a rank whose first windows were acknowledged without being stored
    with wrong_aggregator() as peer:
        perf = recorder(tmp_path, StreamOptions(endpoint=peer.endpoint, batch_seconds=0.05))
        with closing(perf):
            train(perf, 20)
            peer.receive()
            peer.answer(Ack, up_to_sequence=12)
            peer.receive(0.5)
            old: dict[str, Any] = {"v": VERSION, "rank": 0, "incarnation": peer.incarnation}
            hello = StreamHello(**old, run_id="run", attempt="0", world_size=1)
            endpoint = peer.endpoint
            peer.close()
            # When the aggregator has its hello of before only, which names elements that are gone
            with aggregating(tmp_path / "packets", endpoint=endpoint) as aggregator:
                aggregator._receiver.receive((b"route",), encode(hello), lambda: "peer")
                train(perf, 20)
                perf.close()
                # Then the rest is stored, and what is missing is named
                assert "rank 0 of run 'run' holds elements 0 to 11 no more" in aggregator.failures
    assert steps_of(tmp_path / "packets") == list(range(10, 40))
    assert not windows_in(tmp_path / "left-by-0")
