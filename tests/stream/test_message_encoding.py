"""The bytes of every message of version 2 are pinned: a class may be renamed, its encoding may not change."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from sfapp.model.capture import CaptureRequest, RankCapture
from sfapp.model.manifest import Accumulation, Overhead, Parallelism, RecorderInfo
from sfapp.model.samples import ProcessSample
from sfapp.stream.messages import (
    VERSION,
    Ack,
    Bye,
    CaptureAck,
    CaptureCommand,
    CapturePiece,
    CaptureReport,
    Echo,
    FromAggregator,
    FromRank,
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

ENCODED: tuple[tuple[Message, str], ...] = (
    (
        StreamHello(
            **HEAD,
            run_id="run",
            attempt="a",
            first_window=2,
            first=5,
            world_size=4,
            local_rank=1,
            node_rank=1,
            hostname="node-1",
            wrapper="ddp",
            parallelism=Parallelism(dp=2, tp=2),
            prefetch="aligned",
            model_fit=True,
            recorder=RecorderInfo(version="1"),
            extra={"job": [1]},
        ),
        "de0012a474797065a568656c6c6fa17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a672756e5f6964a372"
        "756ea7617474656d7074a161ac66697273745f77696e646f7702a5666972737405aa776f726c645f73697a6504aa6c6f"
        "63616c5f72616e6b01a96e6f64655f72616e6b01a8686f73746e616d65a66e6f64652d31a777726170706572a3646470"
        "ab706172616c6c656c69736d85a2647002a2747002a2707001a2657001a2637001a87072656665746368a7616c69676e6564a9"
        "6d6f64656c5f666974c3a87265636f7264657284a776657273696f6ea131a5746f726368a0a76261636b656e64a0a468"
        "6f7374a0a5657874726181a36a6f629101",
    ),
    (
        WindowOpened(
            **HEAD,
            sequence=5,
            window=2,
            broad=("a",),
            stages=("a", "b"),
            accumulation=Accumulation(factor=2),
            role="dp",
        ),
        "8aa474797065a66f70656e6564a17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a873657175656e636505"
        "a677696e646f7702a562726f616491a161a673746167657392a161a162ac616363756d756c6174696f6e83a666616374"
        "6f7202a76f726465726564c3a473796e63a56576657279a4726f6c65a26470",
    ),
    (
        Steps(**HEAD, sequence=6, window=2, rows=bytes(range(32)), side={"loss": bytes(8)}),
        "88a474797065a57374657073a17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a873657175656e636506a6"
        "77696e646f7702a4726f7773c420000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1fa473"
        "69646581a46c6f7373c4080000000000000000",
    ),
    (
        WindowClosed(
            **HEAD,
            sequence=7,
            window=2,
            steps=1,
            closed_by="shutdown",
            started_at_ns=10,
            ended_at_ns=20,
            side={"loss": bytes(8)},
            faults={"nested_stages": "data"},
            side_faults={"loss": "late"},
            overhead=Overhead(record_ns=3, train_ns=40),
            nested_ns=6,
        ),
        "de000fa474797065a6636c6f736564a17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a873657175656e636507"
        "a677696e646f7702a5737465707301a9636c6f7365645f6279a873687574646f776ead737461727465645f61745f6e73"
        "0aab656e6465645f61745f6e7314a47369646581a46c6f7373c4080000000000000000a66661756c747381ad6e657374"
        "65645f737461676573a464617461ab736964655f6661756c747381a46c6f7373a46c617465a86f7665726865616483a9"
        "6761746865725f6e7300a97265636f72645f6e7303a8747261696e5f6e7328a96e65737465645f6e7306",
    ),
    (
        Gap(**HEAD, sequence=8, until=20, first_window=3, last_window=4, steps=10, reason="full"),
        "8aa474797065a3676170a17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a873657175656e636508a5756e"
        "74696c14ac66697273745f77696e646f7703ab6c6173745f77696e646f7704a573746570730aa6726561736f6ea46675"
        "6c6c",
    ),
    (
        Samples(**HEAD, samples=(ProcessSample(at_ns=1, node_rank=0, rank=3, threads=4),)),
        "85a474797065a773616d706c6573a17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a773616d706c657391"
        "8da46b696e64a770726f63657373a561745f6e7301a96e6f64655f72616e6b00a472616e6b03ab6370755f7065726365"
        "6e74c0a97273735f6279746573c0a77468726561647304aa6f70656e5f66696c6573c0b0726561645f62797465735f70"
        "65725f73c0b37772697474656e5f62797465735f7065725f73c0"
        "b072756e6e61626c655f70657263656e74c0b26d616a6f725f6661756c74735f7065725f73c0b17468726f74746c6564"
        "5f70657263656e74c0",
    ),
    (
        Heartbeat(**HEAD, sent=9, sent_ns=17, offset_ns=1.5, uncertainty_ns=0.5),
        "88a474797065a9686561727462656174a17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a473656e7409a7"
        "73656e745f6e7311a96f66667365745f6e73cb3ff8000000000000ae756e6365727461696e74795f6e73cb3fe0000000"
        "000000",
    ),
    (
        Bye(**HEAD, sequence=21),
        "85a474797065a3627965a17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a873657175656e636515",
    ),
    (
        CaptureReport(
            **HEAD,
            number=0,
            first=0,
            capture="c-1",
            state=RankCapture(rank=3, status="done", first_step=7, steps=2, windows=(2,), events=12),
        ),
        "88a474797065ac636170747572655f73616964a17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a66e756d"
        "62657200a5666972737400a763617074757265a3632d31a47361696489a472616e6b03a6737461747573a4646f6e65aa"
        "66697273745f7374657007a5737465707302a777696e646f77739102a66576656e74730cab74726163655f6279746573"
        "00aa73746f707065645f6e7300a3776879a0",
    ),
    (
        CapturePiece(
            **HEAD,
            number=1,
            first=0,
            capture="c-1",
            window=2,
            piece=0,
            pieces=1,
            content=b"events",
            clock_offset_ns=-4,
        ),
        "8ea474797065ad636170747572655f7069656365a17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a66e75"
        "6d62657201a5666972737400a763617074757265a3632d31a677696e646f7702a5706965636500a670696563657301a7"
        "636f6e74656e74c4066576656e7473af636c6f636b5f6f66667365745f6e73fca76f665f72616e6b00a5686f6c6473a6"
        "6576656e7473",
    ),
    (
        Ack(**HEAD, up_to_sequence=8),
        "85a474797065a361636ba17602a472616e6b03ab696e6361726e6174696f6ea36f6e65ae75705f746f5f73657175656e"
        "636508",
    ),
    (
        Resend(**HEAD, sequence=4, hello=True),
        "86a474797065a6726573656e64a17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a873657175656e636504"
        "a568656c6c6fc3",
    ),
    (
        Echo(**HEAD, sent_ns=1, received_ns=2, replied_ns=3),
        "87a474797065a46563686fa17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a773656e745f6e7301ab7265"
        "6365697665645f6e7302aa7265706c6965645f6e7303",
    ),
    (
        Refused(**HEAD, reason="no"),
        "85a474797065a772656675736564a17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a6726561736f6ea26e6f",
    ),
    (
        CaptureCommand(
            **HEAD,
            request=CaptureRequest(
                id="c-1",
                run_id="run",
                ranks=(3,),
                steps=2,
                first_step=7,
                reason="slow",
                asked_by="test",
                asked_at=datetime(2026, 1, 2, tzinfo=UTC),
            ),
        ),
        "85a474797065ad636170747572655f61736b6564a17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a77265"
        "717565737489a26964a3632d31a672756e5f6964a372756ea572616e6b739103a5737465707302aa66697273745f7374"
        "657007a6726561736f6ea4736c6f77a861736b65645f6279a474657374a861736b65645f6174d6ff69570a80a46b696e"
        "64a770726f66696c65",
    ),
    (
        CaptureAck(**HEAD, number=2),
        "85a474797065ad636170747572655f6865617264a17602a472616e6b03ab696e6361726e6174696f6ea36f6e65a66e75"
        "6d62657202",
    ),
)


@pytest.mark.parametrize(
    ("message", "encoded"), ENCODED, ids=[type(message).__name__ for message, _ in ENCODED]
)
def test_the_encoding_of_each_message_is_unchanged(message: Message, encoded: str) -> None:
    assert encode(message).hex() == encoded


def test_every_message_type_has_a_pinned_encoding() -> None:
    assert {type(message) for message, _ in ENCODED} == {*get_args(FromRank), *get_args(FromAggregator)}
