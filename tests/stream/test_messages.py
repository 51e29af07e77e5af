"""Messages survive encoding, other versions are refused, and no bytes can break a decoder."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.errors import StreamError, StreamVersionError
from sfapp.model.samples import ProcessSample
from sfapp.stream.message_parser import decode_from_aggregator, decode_from_rank
from sfapp.stream.messages import (
    MAX_MESSAGE_BYTES,
    VERSION,
    Ack,
    Bye,
    Echo,
    Gap,
    Heartbeat,
    Message,
    Refused,
    Resend,
    Samples,
    Steps,
    StreamHello,
    WindowClosed,
    WindowOpened,
    encode,
)

HEAD: dict[str, Any] = {"v": VERSION, "rank": 3, "incarnation": "one"}

FROM_RANK: tuple[Message, ...] = (
    StreamHello(**HEAD, run_id="run", attempt="a", world_size=4, hostname="node", extra={"seen": [1]}),
    WindowOpened(**HEAD, sequence=0, window=7, broad=("a",), stages=("a", "b"), role="dp"),
    Steps(**HEAD, sequence=1, window=7, rows=b"\0" * 32, side={"loss": b"\0" * 8}),
    WindowClosed(**HEAD, sequence=2, window=7, steps=1, faults={"nested_stages": "data"}),
    Gap(**HEAD, sequence=3, until=9, first_window=8, last_window=9, steps=4),
    Samples(**HEAD, samples=(ProcessSample(at_ns=1, node_rank=0, rank=3, threads=4),)),
    Heartbeat(**HEAD, sent=3, sent_ns=17),
    Bye(**HEAD, sequence=9),
)
FROM_AGGREGATOR: tuple[Message, ...] = (
    Ack(**HEAD, up_to_sequence=9),
    Resend(**HEAD, sequence=4, hello=True),
    Echo(**HEAD, sent_ns=1, received_ns=2, replied_ns=3),
    Refused(**HEAD, reason="no"),
)


@pytest.mark.parametrize("message", FROM_RANK, ids=lambda message: type(message).__name__)
def test_a_message_from_a_rank_arrives_unchanged(message: Message) -> None:
    assert decode_from_rank(encode(message)) == message


@pytest.mark.parametrize("message", FROM_AGGREGATOR, ids=lambda message: type(message).__name__)
def test_an_answer_of_the_aggregator_arrives_unchanged(message: Message) -> None:
    assert decode_from_aggregator(encode(message)) == message


def test_a_message_without_a_version_is_refused() -> None:
    raw = msgspec.msgpack.encode({"rank": 2, "sampler": "TimeSampler", "tables": {}})
    with pytest.raises(StreamError, match="invalid message"):
        decode_from_rank(raw)


@pytest.mark.parametrize(
    "fields",
    [
        {**HEAD, "v": 3, "type": "hello", "run_id": "run", "attempt": "a", "world_size": 4},
        {**HEAD, "v": 3, "type": "unheard of"},
    ],
    ids=["of a known kind", "of an unknown kind"],
)
def test_a_newer_version_is_refused_with_advice(fields: dict[str, object]) -> None:
    with pytest.raises(StreamVersionError, match=r"newer than version 2.*install a newer sfapp"):
        decode_from_rank(msgspec.msgpack.encode(fields))


@pytest.mark.parametrize(
    "changed",
    [
        {"rank": -1},
        {"rank": "0"},
        {"run_id": ""},
        {"run_id": "x" * 257},
        {"world_size": 0},
        {"v": 1},
        {"v": None},
        {"incarnation": "x" * 65},
        {"type": "unheard of"},
        {"wrapper": "origami"},
    ],
)
def test_a_message_that_breaks_a_rule_is_refused(changed: dict[str, object]) -> None:
    whole = {**HEAD, "type": "hello", "run_id": "run", "attempt": "a", "world_size": 4}
    with pytest.raises(StreamError):
        decode_from_rank(msgspec.msgpack.encode({**whole, **changed}))


def test_unknown_fields_are_ignored() -> None:
    raw = msgspec.msgpack.encode({**HEAD, "type": "bye", "sequence": 1, "colour": "red"})
    assert decode_from_rank(raw) == Bye(**HEAD, sequence=1)


def test_a_message_above_the_limit_is_refused_without_parsing() -> None:
    with pytest.raises(StreamError, match="the limit is"):
        decode_from_rank(b"\0" * (MAX_MESSAGE_BYTES + 1))


@given(st.binary(max_size=300))
def test_random_bytes_raise_only_stream_errors(raw: bytes) -> None:
    for decode in (decode_from_rank, decode_from_aggregator):
        try:
            decode(raw)
        except StreamError:
            continue


@given(st.sampled_from([*FROM_RANK, *FROM_AGGREGATOR]), st.data())
def test_damaged_messages_raise_only_stream_errors(message: Message, data: st.DataObject) -> None:
    raw = bytearray(encode(message))
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        raw[place] = data.draw(st.integers(0, 255))
    damaged = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    for decode in (decode_from_rank, decode_from_aggregator):
        try:
            decode(damaged)
        except StreamError:
            continue
