"""Rows whose window number another attempt has are parts of their own next to that window."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from sfapp.packets import packet_path, read_window, read_windows
from sfapp.packets.attempts import RESTARTS_FILE
from sfapp.stream.messages import Ack, Echo, Heartbeat
from tests.stream.streams import ManualRank, aggregating, until


def write_conflicting_windows(root: Path, of_rank: Path | None = None) -> None:
    """Write windows 0 and 1 of a job and window 0 of another one of its run, which is window 1 of the run.

    Args:
        of_rank: a file that the process of the other one writes meanwhile.
    """
    with aggregating(root, close_after=0.0) as aggregator, ExitStack() as stack:
        one, other = (stack.enter_context(ManualRank(aggregator.endpoint, 0, name)) for name in ("0a", "0b"))

        def write(job: ManualRank, window: int, step: int) -> None:
            first = 3 * window
            job.send(job.opened(first, window), job.steps(first + 1, [step], window))
            job.send(job.closed(first + 2, 1, window))
            while job.receive_type(Ack).up_to_sequence < first + 3:
                pass

        one.send(one.hello(attempt="first"))
        write(one, 0, 0)
        other.send(other.hello(attempt="second"), Heartbeat(**other.head, sent=0, sent_ns=0))
        other.receive_type(Echo)
        write(one, 1, 1)
        if of_rank is not None:
            of_rank.write_bytes(b"as the rank wrote it")
        write(other, 0, 100)


def test_conflicting_rows_have_the_number_of_the_run_also_without_its_attempts(tmp_path: Path) -> None:
    """As in a bucket."""
    write_conflicting_windows(tmp_path)
    (tmp_path / "run" / RESTARTS_FILE).unlink()
    loaded = read_windows([tmp_path])
    assert [item.window.step_N.tolist() for item in loaded.windows] == [[0], [1]]
    (found,) = loaded.conflicts
    assert (found.window, [packet.window.step_N.tolist() for packet in found.set_aside]) == (1, [[100]])


def test_conflicting_rows_replace_no_part_that_the_process_itself_has_written(tmp_path: Path) -> None:
    of_rank = packet_path(tmp_path, "run", 0, 0, "0b")
    write_conflicting_windows(tmp_path, of_rank)
    assert of_rank.read_bytes() == b"as the rank wrote it"
    assert len(list(of_rank.parent.glob("*.rank0.parquet"))) == 2


def test_a_part_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    """It may be another attempt's, of a user whose files others cannot read, or on a disk that does not
    answer."""
    part = packet_path(tmp_path, "run", 0, 0)
    with aggregating(tmp_path, abandon_after=0.2) as aggregator, ManualRank(aggregator.endpoint) as job:
        job.send(job.hello(), Heartbeat(**job.head, sent=0, sent_ns=0))
        job.receive_type(Echo)
        part.write_bytes(b"as the other one wrote it")
        job.send(job.opened(0), job.steps(1, [7]))
        until(lambda: aggregator.counts.parts)
    assert part.read_bytes() == b"as the other one wrote it"
    (written,) = set(part.parent.glob("*.rank0.parquet")) - {part}
    assert read_window(written).step_N.tolist() == [7]
