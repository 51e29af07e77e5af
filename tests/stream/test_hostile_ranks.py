"""Whatever a rank claims, the aggregator goes on for all others, in bounded memory and disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfapp.metrics import MetricsLog
from sfapp.metrics.sample_files import read_segment
from sfapp.model import DEFAULT_STAGES
from sfapp.model.capture import CaptureRequest, RankCapture
from sfapp.model.host_evidence import GC, VOLUNTARY
from sfapp.model.parse import MOST_WINDOW
from sfapp.model.samples import LinkSample, PaceSample
from sfapp.packets import read_window
from sfapp.packets.captures import ask_for_capture, new_request, new_stacks_request
from sfapp.stream import rank_streams, stream_receiver
from sfapp.stream.message_parser import decode_from_aggregator
from sfapp.stream.messages import (
    VERSION,
    CaptureCommand,
    CapturePiece,
    CaptureReport,
    FromAggregator,
    Gap,
    Message,
    Refused,
    Samples,
    Steps,
    StreamHello,
    WindowClosed,
    WindowOpened,
    encode,
)
from sfapp.stream.metrics_writer import MetricsWriter
from sfapp.stream.stream_receiver import MAX_HELLO_BYTES, StreamReceiver

LARGEST = 2**62


class HostileRank:
    """A rank whose messages reach an aggregator without a socket, on a clock of the test."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.now = 0.0
        self.answers: list[FromAggregator] = []
        self.metrics = MetricsWriter(root)
        self.receiver = StreamReceiver(
            root,
            lambda route, answer: self.answers.append(decode_from_aggregator(answer)),
            lambda: self.now,
            on_samples=self.metrics.add_samples,
            on_steps=self.metrics.count_steps,
            **options,
        )

    def send(self, *messages: Message) -> None:
        for message in messages:
            self.receiver.receive((b"route",), encode(message), lambda: "peer")

    def wait(self, seconds: float = 1.0) -> None:
        """Let time pass, and do what the aggregator does meanwhile."""
        self.now += seconds
        self.receiver.note_empty_queue()
        self.receiver.run_due_work()
        self.metrics.write(self.receiver.snapshot())

    @property
    def refusal(self) -> str:
        """The reason for the newest dropped message."""
        return self.receiver.snapshot().last_fault["peer"]


def head(name: str = "a") -> dict[str, Any]:
    return {"v": VERSION, "rank": 0, "incarnation": name}


def hello(name: str = "a", **fields: Any) -> StreamHello:
    return StreamHello(**head(name), **{"run_id": "run", "attempt": name, "world_size": 4, **fields})


def opened(sequence: int, window: int, name: str = "a", stages: tuple[str, ...] = DEFAULT_STAGES) -> Message:
    return WindowOpened(**head(name), sequence=sequence, window=window, broad=stages[:-1], stages=stages)


def steps(sequence: int, numbers: np.ndarray, window: int = 0) -> Steps:
    rows = np.column_stack([numbers, np.full((len(numbers), 1 + len(DEFAULT_STAGES)), 60)])
    return Steps(**head(), sequence=sequence, window=window, rows=rows.astype("<i8").tobytes())


def test_no_step_number_stops_a_request_to_capture(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path)
    ask_for_capture(tmp_path, new_request("run", [0]))
    rank.send(hello(), opened(0, 0), steps(1, np.array([0])))
    rank.wait()
    rank.send(steps(2, np.array([LARGEST])))
    for _ in range(3):
        rank.wait()
    commands = [answer.request.first_step for answer in rank.answers if isinstance(answer, CaptureCommand)]
    assert commands
    assert all(first is not None and 0 <= first <= LARGEST for first in commands)


@pytest.mark.parametrize("numbers", [[-1, 0], [LARGEST, LARGEST + 1]], ids=["below 0", "beyond 2^62"])
def test_step_numbers_that_no_packet_can_hold_are_refused(tmp_path: Path, numbers: list[int]) -> None:
    rank = HostileRank(tmp_path)
    rank.send(hello(), opened(0, 0), steps(1, np.array(numbers)))
    assert rank.refusal == "step numbers must ascend from 0 to 2^62"


def captured(root: Path) -> CaptureRequest:
    request = new_request("run", [0])
    ask_for_capture(root, request)
    return request


def test_a_report_of_windows_beyond_all_numbers_is_dropped(tmp_path: Path) -> None:
    rank, request = HostileRank(tmp_path), captured(tmp_path)
    rank.send(hello("before"), opened(0, 5, "before"), hello())
    state = RankCapture(rank=0, status="running", windows=(LARGEST,))
    rank.send(CaptureReport(**head(), number=0, first=0, capture=request.id, state=state))
    assert "outside 0…10^18 − 1" in rank.refusal


@pytest.mark.parametrize("window", [lambda number: 0, lambda number: number], ids=["one file", "many files"])
def test_pieces_of_events_take_bounded_disk(tmp_path: Path, window: Callable[[int], int]) -> None:
    rank, request, refusals = HostileRank(tmp_path), captured(tmp_path), set[str]()
    rank.send(hello())
    for number in range(140):
        rank.send(
            CapturePiece(
                **head(), number=number, first=0, capture=request.id, window=window(number),
                piece=min(number, 1), pieces=512, content=bytes(512 << 10),
            )
        )  # fmt: skip
        refusals.update(rank.receiver.snapshot().last_fault.values())
        assert sum(path.stat().st_size for path in tmp_path.rglob("*.part")) <= 64 << 20
    assert any("bytes of events" in refusal for refusal in refusals)
    assert "an earlier piece of the file was refused" in rank.refusal


def test_windows_beyond_all_numbers_are_refused(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path)
    for name in map(str, range(2)):
        rank.send(hello(name), opened(0, MOST_WINDOW, name))
    rank.wait()
    assert "no window numbers left" in rank.refusal
    rank.send(hello("z", run_id="other"), opened(0, 5, "z"), hello("y", run_id="other"))
    rank.send(opened(0, MOST_WINDOW, "y"))
    assert "outside 0…10^18 − 1" in rank.refusal
    rank.send(opened(0, MOST_WINDOW + 1, "y"))
    assert "invalid message" in rank.refusal


def test_claims_of_lost_steps_do_not_end_the_metrics(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path)
    rank.send(hello())
    for sequence in range(6):
        rank.send(
            Gap(
                **head(),
                sequence=sequence,
                until=sequence + 1,
                first_window=0,
                last_window=0,
                steps=LARGEST,
            )
        )
    rank.wait()
    chunk = read_segment(next(tmp_path.rglob("metrics/*.jsonl")))
    assert chunk is not None
    assert chunk.refused == 0
    assert [each.lost_steps for each in chunk.samples if isinstance(each, LinkSample)] == [LARGEST]


def test_samples_of_endless_steps_can_be_merged(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path)
    sample = PaceSample(
        at_ns=1, node_rank=0, rank=0, step=1, steps=2**63 - 1, wall_mean_ns=1.0, wall_max_ns=1
    )
    rank.send(hello(), Samples(**head(), samples=(sample,) * 4))
    rank.wait()
    in_an_hour = rank.metrics._now_s() + 3600
    for _ in MetricsLog(tmp_path, "run", now_s=lambda: in_an_hour).downsample():
        pass
    chunk = read_segment(next(tmp_path.rglob("metrics/*.jsonl")))
    assert chunk is not None
    assert sample in chunk.samples


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        ({"host.cpu.nonsense_ms": bytes(8)}, "host evidence with invalid names"),
        ({"loss": bytes(8)}, "host evidence with invalid names"),
        ({GC: bytes(8 * 4)}, "host evidence that does not match its steps"),
    ],
)
def test_evidence_that_the_window_cannot_have_is_refused(
    tmp_path: Path, evidence: dict[str, bytes], reason: str
) -> None:
    rank = HostileRank(tmp_path)
    rank.send(hello(world_size=1), opened(0, 0), steps(1, np.arange(3)))
    closed = WindowClosed(**head(), sequence=4, window=0, steps=3, evidence=evidence)
    rank.send(closed)
    assert reason in rank.refusal
    assert any(isinstance(answer, Refused) for answer in rank.answers)


def test_evidence_that_is_constant_is_one_value_of_all_steps(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path)
    evidence = {GC: np.array([2.0]).tobytes(), VOLUNTARY: np.arange(3.0).tobytes()}
    rank.send(
        hello(world_size=1, attributes={"kernel": "6.8"}),
        opened(0, 0),
        steps(1, np.arange(3)),
        WindowClosed(**head(), sequence=4, window=0, steps=3, evidence=evidence),
    )
    rank.wait()
    window = read_window(tmp_path)
    assert window.side[GC].value_NR.tolist() == [[2.0]] * 3
    assert window.side[VOLUNTARY].value_NR.tolist() == [[0.0], [1.0], [2.0]]
    assert window.attributes == {"kernel": ("6.8",)}


def test_a_window_that_never_closes_takes_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_streams, "MAX_WINDOW_BYTES", 1 << 20)
    rank = HostileRank(tmp_path)
    rank.send(hello(), opened(0, 0))
    for begin in range(0, 100_000, 5_000):
        rank.send(steps(1 + begin, np.arange(begin, begin + 5_000)))
    assert "record fewer steps per window" in rank.refusal
    assert rank.receiver.assembler.size < 2 << 20
    assert any(isinstance(answer, Refused) for answer in rank.answers)


def test_open_windows_above_the_limit_cost_the_largest_stream(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path, most_bytes=1 << 20)
    names = [f"r{number}" for number in range(30)]
    for number, name in enumerate(names):
        step_N = np.arange(500 + 100 * number)
        rank.send(hello(name, run_id=name), opened(0, 0, name))
        message = steps(1, step_N)
        rank.send(Steps(**head(name), sequence=1, window=0, rows=message.rows))
        rank.wait(0.01)
    assert rank.receiver.assembler.size <= 1 << 20
    refused = {answer.incarnation for answer in rank.answers if isinstance(answer, Refused)}
    assert "r0" not in refused
    assert refused
    parts = {path.parent.name for path in tmp_path.rglob("*.rank0.parquet")}
    assert parts == refused


def test_an_open_window_does_not_keep_later_ones_in_memory(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path, most_bytes=1 << 20)
    rank.send(hello("open"), opened(0, 0, "open"))
    rank.send(hello("works", run_id="works"))
    sequence = 0
    for window in range(10):
        message = steps(1, np.arange(5_000 * window, 5_000 * (window + 1)))
        rank.send(
            opened(sequence, window, "works"),
            Steps(**head("works"), sequence=sequence + 1, window=window, rows=message.rows),
            WindowClosed(**head("works"), sequence=sequence + 5_001, window=window, steps=5_000),
        )
        sequence += 5_002
        rank.wait(0.01)
    assert rank.receiver.assembler.size <= 1 << 20
    assert not any(isinstance(answer, Refused) for answer in rank.answers)
    assert len(list(tmp_path.rglob("*.parquet"))) > 5


def test_windows_without_steps_count_as_memory(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path, most_bytes=1 << 20)
    stages = tuple(f"stage {number}" for number in range(1000))
    rank.send(hello())
    for window in range(40):
        rank.send(
            opened(2 * window, window, stages=stages),
            Gap(
                **head(),
                sequence=2 * window + 1,
                until=2 * window + 2,
                first_window=window,
                last_window=window,
            ),
        )
        rank.wait(0.01)
    assert len(rank.receiver.assembler._pending) < 10
    assert rank.receiver.assembler.size <= 1 << 20


def test_a_window_begins_once(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path)
    gap = Gap(**head(), sequence=1, until=2, first_window=0, last_window=0)
    rank.send(hello(), opened(0, 0), gap, opened(2, 0))
    assert "begins a second time" in rank.refusal


def test_a_hello_is_short(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path)
    rank.send(hello(extra={"lists": [[]] * MAX_HELLO_BYTES}))
    assert "the limit is 65,536" in rank.refusal
    assert not rank.receiver.snapshot().ranks


@pytest.mark.parametrize("number", [lambda rank: rank, lambda rank: 0], ids=["ranks", "processes"])
def test_the_number_of_ranks_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: Callable[[int], int]
) -> None:
    monkeypatch.setattr(stream_receiver, "MOST_RANKS", 100)
    rank = HostileRank(tmp_path)

    def connect(name: int) -> None:
        about: dict[str, Any] = {"run_id": "run", "attempt": "a", "world_size": 1000}
        rank.send(StreamHello(**{**head(str(name)), "rank": number(name)}, **about))

    for name in range(150):
        connect(name)
    assert len(rank.receiver._streams) == 100
    assert "has to wait: 100 ranks are connected" in rank.refusal
    rank.wait(61.0)
    connect(200)
    assert "200" in rank.receiver._streams


@pytest.mark.parametrize("capture", ["a\0b", "../../request", "a" * 65, "", "a\n"])
def test_a_capture_is_named_by_an_id(tmp_path: Path, capture: str) -> None:
    rank = HostileRank(tmp_path)
    rank.send(hello())
    rank.send(
        CaptureReport(**head(), number=0, first=0, capture=capture, state=RankCapture(rank=0, status="done"))
    )
    assert "regex" in rank.refusal or "pattern" in rank.refusal


@pytest.mark.parametrize(
    "coordinates",
    [
        {"zz": 0},
        {"pp": 2**20},
        {f"d{number}": number for number in range(100_000)},
    ],
    ids=["no dimension", "too large", "many"],
)
def test_a_place_that_no_job_has_is_refused_before_it_is_kept(
    tmp_path: Path, coordinates: dict[str, int]
) -> None:
    rank = HostileRank(tmp_path)
    window = WindowOpened(
        **head(),
        sequence=0,
        window=0,
        broad=DEFAULT_STAGES[:-1],
        stages=DEFAULT_STAGES,
        coordinates=coordinates,
    )
    rank.send(hello(), window)
    assert rank.refusal
    assert rank.receiver.assembler.size == 0


def test_a_world_beyond_any_job_is_refused(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path)
    rank.send(hello(world_size=2**31))
    assert rank.refusal
    assert not rank.receiver.snapshot().ranks


def test_one_value_of_evidence_counts_as_that_of_all_steps(tmp_path: Path) -> None:
    rank = HostileRank(tmp_path)
    rank.send(hello(), opened(0, 0), steps(1, np.arange(1000)))
    before = rank.receiver.assembler.size
    evidence = {GC: bytes(8), VOLUNTARY: bytes(8)}
    rank.send(WindowClosed(**head(), sequence=1001, window=0, steps=1000, evidence=evidence))
    assert rank.receiver.assembler.size == before + 2 * 8 * 1000


@pytest.mark.parametrize("kind", ["stacks", "profile"])
def test_a_rank_sends_only_what_was_requested(tmp_path: Path, kind: str) -> None:
    request = captured(tmp_path)
    if kind == "stacks":
        request = new_stacks_request("run", [0])
        ask_for_capture(tmp_path, request)
    rank = HostileRank(tmp_path)
    rank.send(hello())
    before = sorted(tmp_path.rglob("*"))
    piece = CapturePiece(
        **head(), number=0, first=0, capture=request.id, window=7, piece=0, pieces=1, content=b"{}",
        holds="events" if kind == "stacks" else "dump",
    )  # fmt: skip
    rank.send(piece)
    assert "were not requested" in rank.refusal
    assert sorted(tmp_path.rglob("*")) == before
