"""Nothing acknowledged is lost, nothing is stored twice and every loss is named, in random histories."""

from __future__ import annotations

from pathlib import Path

from hypothesis import settings

from benchmarks.delivery_histories import DeliveryHistories
from benchmarks.simulated_stream import SimulatedClock, SimulatedDisk, SimulatedRankProcess
from sfapp.stream.message_parser import decode_from_rank
from sfapp.stream.messages import Gap

TestDeliveryHistories = DeliveryHistories.TestCase
TestDeliveryHistories.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_steps_of_a_gap_that_grew_after_it_was_sent_stay_counted_as_lost(tmp_path: Path) -> None:
    process = SimulatedRankProcess(
        0, 1, "attempt", tmp_path, SimulatedClock(), SimulatedDisk(), lambda: None, first_window=0
    )

    def train(steps: range) -> None:
        for step in steps:
            process.train(step, 1_000_000 + step)

    train(range(60))
    process.sender.turn()
    sent = [decode_from_rank(frame) for frame in process.link.up]
    reported = sum(message.steps for message in sent if isinstance(message, Gap))
    assert reported == process.writer.lost_steps > 0
    train(range(60, 120))
    process.sender.queue.enforce_limits(0.0)  # discards more, which the aggregator does not know
    assert process.writer.lost_steps > reported

    process.sender.queue.acknowledge(process.sender.queue.end)  # the rest had arrived
    assert process.writer.lost_steps == reported
