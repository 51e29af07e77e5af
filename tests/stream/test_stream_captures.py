"""Captures over the stream: requests reach ranks without a shared folder, events return exactly once."""

from __future__ import annotations

import errno
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import sfapp
from sfapp.files import read_regular
from sfapp.model import CATEGORIES, Lane, Operators
from sfapp.model.capture import CaptureLimits, CaptureRequest, CaptureState, RankCapture
from sfapp.model.stacks import RankStacks
from sfapp.packets import packet_path, read_operators, read_packet_operators, write_operators
from sfapp.packets.captures import (
    ask_for_capture,
    captures,
    new_request,
    new_stacks_request,
    request_path,
    state_of,
)
from sfapp.packets.paths import name_in_path, operators_path
from sfapp.packets.stack_files import dump_path, encode_stacks, read_stacks
from sfapp.stream import Relay, capture_broker
from sfapp.stream.messages import Bye, CaptureAck, CaptureCommand, CapturePiece, CaptureReport
from tests.stream.streams import LOOPBACK, ManualRank, aggregating, recorder, running, until, windows_in

EAGER = CaptureLimits(cooldown_seconds=0.0)


def ask(root: Path, **about: Any) -> CaptureRequest:
    request = new_request("run", about.pop("ranks", [0]), **{"steps": 2, **about})
    ask_for_capture(root, request)
    return request


def train_until_over(perf: sfapp.Recorder, root: Path, request: CaptureRequest) -> CaptureState:
    deadline = time.monotonic() + 40
    while not (state := state_of(root, request)).is_over:
        assert time.monotonic() < deadline, state
        with perf.step(), perf.stage("model.fwd_loss_cpu_wall"):
            torch.ones(8).sin()
        time.sleep(0.02)
    return state


def test_a_request_reaches_a_rank_through_its_relay_and_events_return(tmp_path: Path) -> None:
    root = tmp_path / "packets"
    with (
        aggregating(root) as aggregator,
        running(Relay(LOOPBACK, aggregator.endpoint)) as relay,
        recorder(tmp_path, relay.endpoint, captures=EAGER) as perf,
    ):
        state = train_until_over(perf, root, ask(root))
    assert (state.status, state.why) == ("done", "")
    (window, *_) = state.windows
    events = read_operators(operators_path(root, "run", window, 0))
    first = state.ranks[0].first_step
    assert first is not None
    assert set(events.steps) <= {first, first + 1}
    assert "aten::sin" in events.names
    assert abs(events.start_ns_E.min() / 1e9 - time.time()) < 60
    assert not list((tmp_path / "left-by-0").rglob("*.ops.parquet"))
    assert not list(root.rglob("*.part"))
    assert perf.failures == ()


def test_a_refused_capture_is_reported_through_the_stream(tmp_path: Path) -> None:
    root = tmp_path / "packets"
    with (
        aggregating(root) as aggregator,
        recorder(tmp_path, aggregator.endpoint, captures=CaptureLimits(per_hour=0)) as perf,
    ):
        state = train_until_over(perf, root, ask(root))
    assert (state.status, state.why) == ("refused", "rank 0: the limit of 0 captures per hour is reached")


def test_stacks_of_a_rank_arrive_through_the_stream_while_it_does_not_train(tmp_path: Path) -> None:
    root = tmp_path / "packets"
    with (
        aggregating(root) as aggregator,
        recorder(tmp_path, aggregator.endpoint) as perf,
    ):
        with perf.step():
            request = new_stacks_request("run", [0], asked_by="a test")
            ask_for_capture(root, request)
            until(lambda: state_of(root, request).is_over)
        (found,) = read_stacks(root, request)
    assert (state_of(root, request).status, found.source) == ("done", "interpreter")
    assert found.threads[0].is_training
    assert "test_stacks_of_a_rank" in " ".join(frame.function for frame in found.threads[0].frames)
    assert perf.failures == ()


# ---- message by message ---------------------------------------------------------------------------


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return events_of_step(7, tmp_path)


def events_of_step(step: int, tmp_path: Path) -> bytes:
    events = Operators.of(
        names=["a", "b"],
        name_E=[0, 1],
        category_E=[CATEGORIES.index("host")] * 2,
        lanes=[Lane(3, "thread 1", False)],
        lane_E=[0, 0],
        start_ns_E=[1000, 2000],
        end_ns_E=[1500, 2500],
        step_E=[step, step],
    )
    path = tmp_path / "one.parquet"
    write_operators(events, "run", 0, path)
    return path.read_bytes()


def pieces(peer: ManualRank, request: CaptureRequest, content: bytes, number: int) -> list[CapturePiece]:
    cut = len(content) // 3 + 1
    parts = [content[begin : begin + cut] for begin in range(0, len(content), cut)]
    return [
        CapturePiece(
            **peer.head,
            number=number + place,
            first=number,
            capture=request.id,
            window=0,
            piece=place,
            pieces=len(parts),
            content=part,
            clock_offset_ns=500,
        )
        for place, part in enumerate(parts)
    ]


def test_a_piece_is_not_written_through_a_link(tmp_path: Path, content: bytes) -> None:
    request = replace(new_request("run", [3], 2), first_step=7)
    target = tmp_path / "of the aggregator's user"
    target.write_text("as it was")
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint, rank=3) as peer:
        path = ask_for_capture(tmp_path, request)
        process = name_in_path(peer.head["incarnation"])
        path.with_name(f".{request.id}.rank3.{process}.part").symlink_to(target)
        peer.send(peer.hello(world_size=4))
        peer.receive_type(CaptureCommand)
        peer.send(pieces(peer, request, content, 0)[0])
        until(lambda: any("cannot" in failure or "links" in failure for failure in aggregator.failures))
    assert target.read_text() == "as it was"


def test_pieces_are_stored_once_despite_loss_and_duplicates(tmp_path: Path, content: bytes) -> None:
    request = replace(new_request("run", [3], 2), first_step=None)
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint, rank=3) as peer:
        ask_for_capture(tmp_path, request)
        peer.send(peer.hello(world_size=4))
        command: CaptureCommand = peer.receive_type(CaptureCommand)
        assert command.request.id == request.id
        assert command.request.first_step is not None
        running = RankCapture(rank=3, status="running", first_step=9)
        peer.send(CaptureReport(**peer.head, number=0, first=0, capture=request.id, state=running))
        assert peer.receive_type(CaptureAck).number == 1
        first, second, third = pieces(peer, request, content, 1)
        peer.send(first, third, third, first, second, first, second, third, third)
        assert peer.receive_type(CaptureAck).number == 4
        path = operators_path(tmp_path, "run", 0, 3)
        events = read_operators(path)
        assert events.start_ns_E.tolist() == [1500, 2500], "on the aggregator's clock"
        written = path.stat().st_mtime_ns
        done = replace(running, status="done", steps=1, windows=(0,), events=2)
        peer.send(CaptureReport(**peer.head, number=4, first=4, capture=request.id, state=done))
        until(lambda: captures(tmp_path, "run")[0].status == "done")
        assert path.stat().st_mtime_ns == written


def test_two_processes_of_a_rank_send_their_pieces_at_the_same_time(tmp_path: Path) -> None:
    """As two jobs of one name, or processes that outlive the next attempt."""
    request = ask(tmp_path, ranks=[3])
    with aggregating(tmp_path) as aggregator, ExitStack() as stack:
        peers = [stack.enter_context(ManualRank(aggregator.endpoint, 3, name)) for name in ("0a", "0b")]
        for peer in peers:
            peer.send(peer.hello(world_size=4, attempt=peer.head["incarnation"]))
        one, other = (
            pieces(peer, request, events_of_step(step, tmp_path), 0)
            for peer, step in zip(peers, (7, 9), strict=True)
        )
        sent = [message for together in zip(one, other, strict=True) for message in together]
        for number, message in enumerate(sent):
            peers[number % 2].send(message)
            until(partial(lambda count: aggregator.snapshot().messages == count, 3 + number))
        assert [peer.receive_type(CaptureAck).number for peer in peers] == [3, 3]
        assert not aggregator.failures
    assert list(tmp_path.rglob("*.ops.parquet"))


def test_the_answer_to_a_request_that_was_removed_holds_up_no_other(tmp_path: Path) -> None:
    removed, kept = (ask(tmp_path, ranks=[3]) for _ in range(2))
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint, rank=3) as peer:
        peer.send(peer.hello(world_size=4))
        peer.receive_type(CaptureCommand)
        request_path(tmp_path, "run", removed.id).unlink()
        done = RankCapture(rank=3, status="done")
        for number, request in enumerate((removed, kept)):
            peer.send(CaptureReport(**peer.head, number=number, first=0, capture=request.id, state=done))
            assert peer.receive_type(CaptureAck).number == number + 1
        (reason,) = aggregator.snapshot().last_fault.values()
    assert "was not requested" in reason
    assert [(state.request.id, state.status) for state in captures(tmp_path, "run")] == [(kept.id, "done")]


def pieces_of_a_dump(request: CaptureRequest, peer: ManualRank) -> list[CapturePiece]:
    """Messages that carry a file of twelve bytes."""
    return [
        CapturePiece(
            **peer.head,
            number=place,
            first=0,
            capture=request.id,
            piece=place,
            pieces=3,
            content=4 * letter,
            window=0,
            clock_offset_ns=0,
            of_rank=3,
            holds="dump",
        )
        for place, letter in enumerate((b"A", b"B", b"C"))
    ]


def test_a_piece_is_sent_again_if_its_request_cannot_be_read_at_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = new_stacks_request("run", [3])
    ask_for_capture(tmp_path, request)
    errors = iter([OSError(errno.EIO, "Input/output error")])

    def read(path: Path, *arguments: Any, **options: Any) -> bytes:
        if path == request_path(tmp_path, "run", request.id) and (error := next(errors, None)):
            raise error
        return read_regular(path, *arguments, **options)

    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint, rank=3) as peer:
        peer.send(peer.hello(world_size=4, understands=["profile", "stacks"]))
        peer.receive_type(CaptureCommand)
        monkeypatch.setattr("sfapp.packets.captures.read_regular", read)
        peer.send(*pieces_of_a_dump(request, peer))
        until(lambda: aggregator.failures)
        peer.send(*pieces_of_a_dump(request, peer))
        peer.receive_type(CaptureAck)
    assert dump_path(tmp_path, request, 3).read_bytes() == b"AAAABBBBCCCC"


def test_pieces_after_a_refused_one_are_no_file(tmp_path: Path) -> None:
    request = new_stacks_request("run", [3])
    ask_for_capture(tmp_path, request)
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint, rank=3) as peer:
        peer.send(peer.hello(world_size=4, understands=["profile", "stacks"]))
        peer.receive_type(CaptureCommand)
        first, *others = pieces_of_a_dump(request, peer)
        content = request_path(tmp_path, "run", request.id).read_bytes()
        request_path(tmp_path, "run", request.id).unlink()
        peer.send(first)
        until(lambda: aggregator.snapshot().last_fault)
        request_path(tmp_path, "run", request.id).write_bytes(content)
        peer.send(*others)
        assert peer.receive_type(CaptureAck).number == 3
    assert not dump_path(tmp_path, request, 3).exists()


def test_requests_of_more_runs_than_are_looked_at_together_are_passed_on_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_broker, "_MAX_RUNS", 1)
    monkeypatch.setattr(capture_broker, "POLL_SECONDS", 0.05)
    with aggregating(tmp_path) as aggregator, ExitStack() as stack:
        for run_id in ("a", "b", "c"):
            ask_for_capture(tmp_path, new_request(run_id, [0], 2, first_step=7))
            peer = stack.enter_context(ManualRank(aggregator.endpoint, incarnation=run_id))
            peer.send(peer.hello(run_id=run_id))
            assert peer.receive_type(CaptureCommand).request.run_id == run_id


def test_a_capture_replaces_no_other_of_the_same_window(tmp_path: Path) -> None:
    root = tmp_path / "packets"
    first, second = (ask(root, ranks=[3]) for _ in range(2))
    with aggregating(root) as aggregator, ManualRank(aggregator.endpoint, rank=3) as peer:
        peer.send(peer.hello(world_size=4))
        # When the second capture comes twice, as after a restart of the aggregator
        for number, (request, step) in enumerate(((first, 7), (second, 9), (second, 9))):
            peer.send(*pieces(peer, request, events_of_step(step, tmp_path), 3 * number))
            while peer.receive_type(CaptureAck).number < 3 * number + 3:
                pass
    # Then the events of both are there, each once
    found = read_packet_operators([packet_path(root, "run", 0)])
    assert found is not None
    assert sorted(found.step_E.tolist()) == [7, 7, 9, 9]


def test_a_restarted_aggregator_receives_the_file_from_its_first_piece(
    tmp_path: Path, content: bytes
) -> None:
    request = new_request("run", [3], 2)
    ask_for_capture(tmp_path, request)
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint, rank=3) as peer:
        peer.send(peer.hello(world_size=4))
        peer.send(*pieces(peer, request, content, 6)[:2])
        peer.receive_type(CaptureCommand)
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint, rank=3) as peer:
        peer.send(peer.hello(world_size=4))
        *_, last = sent = pieces(peer, request, content, 6)
        peer.send(last, *sent)
        assert peer.receive_type(CaptureAck).number == 9
    assert len(read_operators(operators_path(tmp_path, "run", 0, 3))) == 2


def test_unrequested_captures_are_refused_and_damaged_events_dropped(tmp_path: Path, content: bytes) -> None:
    request = new_request("run", [3], 2)
    ask_for_capture(tmp_path, request)
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint, rank=3) as peer:
        peer.send(peer.hello(world_size=4))
        other = replace(request, id="unrequested")
        peer.send(*pieces(peer, other, content, 0)[:1])
        until(lambda: any(aggregator.snapshot().faults.values()))
        broken = pieces(peer, request, content[:-50] + b"\0" * 50, 1)
        peer.send(*broken)
        assert peer.receive_type(CaptureAck).number == 4
        until(lambda: aggregator.failures)
    assert not list(tmp_path.rglob("*.ops.parquet"))
    assert not list(tmp_path.rglob("*.part"))


def test_a_rank_answers_for_its_neighbour_and_damaged_stacks_are_dropped(tmp_path: Path) -> None:
    request = new_stacks_request("run", [3, 4])
    ask_for_capture(tmp_path, request)
    found = RankStacks(rank=4, taken_at=datetime.now(UTC), source="signal")
    about: dict[str, Any] = {"first": 0, "capture": request.id}
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint, rank=3) as peer:
        peer.send(peer.hello(world_size=8, understands=("profile", "stacks")))
        assert peer.receive_type(CaptureCommand).request == request
        for number, (of_rank, content) in enumerate(((4, encode_stacks(found)), (3, b"{}"), (5, b"{}"))):
            piece: dict[str, Any] = {
                "window": 0,
                "piece": 0,
                "pieces": 1,
                "holds": "stacks",
                "of_rank": of_rank,
            }
            peer.send(CapturePiece(**peer.head, number=number, content=content, **about, **piece))
        assert [peer.receive_type(CaptureAck).number for _ in range(3)] == [1, 2, 3]
        done = RankCapture(rank=4, status="done")
        peer.send(CaptureReport(**peer.head, number=3, state=done, **about))
        until(lambda: len(state_of(tmp_path, request).ranks) == 1)
        assert len(aggregator.failures) == 2
    assert list(read_stacks(tmp_path, request)) == [found]
    assert state_of(tmp_path, request).ranks_done == (4,)
    assert not list(tmp_path.rglob("*.part"))


def test_an_older_recorder_is_not_asked_for_stacks_and_is_named_as_the_reason(tmp_path: Path) -> None:
    request = new_stacks_request("run", [3])
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint, rank=3) as peer:
        ask_for_capture(tmp_path, request)
        peer.send(peer.hello(world_size=8))
        until(lambda: state_of(tmp_path, request).is_over)
        profile = ask(tmp_path, ranks=[3], first_step=5)
        assert peer.receive_type(CaptureCommand).request.id == profile.id
    assert state_of(tmp_path, request).why.startswith("rank 3: it runs an older recorder")


def test_a_folder_of_requests_that_is_a_link_ends_no_aggregator(tmp_path: Path) -> None:
    request = new_stacks_request("run", [3])
    folder = ask_for_capture(tmp_path, request).parent
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint, rank=3) as peer:
        peer.send(peer.hello(world_size=8))
        until(lambda: any("is a link: nothing is written there" in each for each in aggregator.failures))
        peer.send(peer.opened(0), peer.steps(1, [0]), peer.closed(2, 1), Bye(**peer.head, sequence=3))
        until(lambda: windows_in(tmp_path))
