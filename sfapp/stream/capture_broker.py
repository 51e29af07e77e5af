"""Pass capture requests from the packet directory to ranks that stream, and write their reports and events.

This is the aggregator's side of captures; the rank's side is ``capture_mailbox``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from msgspec import UNSET

from sfapp.errors import CaptureError, PacketError, StreamError
from sfapp.files import open_regular, read_regular
from sfapp.model import Operators
from sfapp.model.capture import CaptureKind, CaptureRequest, CaptureState, RankCapture
from sfapp.packets import read_operators
from sfapp.packets.capture_mailbox import StepPace
from sfapp.packets.captured_operators import write_captured
from sfapp.packets.captures import (
    changed_at,
    open_captures,
    passing_cause,
    rank_path,
    read_request,
    request_path,
    write_rank_capture,
)
from sfapp.packets.paths import name_in_path
from sfapp.packets.stack_files import most_bytes, write_file
from sfapp.stream.capture_mailbox import MAX_BYTES
from sfapp.stream.messages import (
    VERSION,
    CaptureAck,
    CaptureCommand,
    CapturePiece,
    CaptureReport,
    FromAggregator,
)
from sfapp.stream.rank_streams import RankStream
from sfapp.stream.run_turns import next_in_turn

POLL_SECONDS = 1.0
_LEAD_SECONDS = 8.0
"""Seconds by which the first step is chosen ahead. Ranks receive the command within a fraction of a second,
but load the profiler the first time."""

_MAX_RUNS, _MAX_CHOSEN = 64, 1000

OLDEST_KINDS: tuple[CaptureKind, ...] = ("profile",)
"""Kinds of requests that recorders understand which do not say what they understand."""

Send = Callable[[RankStream, FromAggregator], None]


class CaptureBroker:
    """Broker between capture files and ranks. Used on the aggregator's thread only.

    Args:
        root: the packet directory.
        send: sends an answer to a rank.
        failures: receives a message for each failure.
    """

    def __init__(self, root: Path, send: Send, failures: list[str]) -> None:
        self._root = root
        self._send = send
        self._failures = failures
        self._next_poll = 0.0
        self._polled = ""
        self._changed: dict[str, int] = {}
        self._open: dict[str, list[CaptureState]] = {}
        self._first_step: dict[str, int] = {}
        self._pace: dict[str, StepPace] = {}

    # ---- to the ranks ---------------------------------------------------------------------------

    def poll(self, streams: Iterable[RankStream], now: float) -> None:
        """Once a second, send open requests to their ranks until each rank has reported on them. Of more than
        64 runs some are looked at, in turn."""
        if now < self._next_poll:
            return
        self._next_poll = now + POLL_SECONDS
        by_run: dict[str, list[RankStream]] = {}
        for stream in streams:
            by_run.setdefault(stream.hello.run_id, []).append(stream)
        self._remove_other_runs(by_run.keys())
        for run_id in next_in_turn(by_run, self._polled, _MAX_RUNS):
            self._polled, of_run = run_id, by_run[run_id]
            pace = self._pace.setdefault(run_id, StepPace())
            pace.add(now, max(stream.last_step for stream in of_run))
            for state in self._open_captures(run_id):
                self._send_command(state, of_run, pace.ahead(_LEAD_SECONDS))

    def _remove_other_runs(self, runs: Collection[str]) -> None:
        for table in (self._pace, self._changed, self._open):
            for run_id in table.keys() - runs:
                del table[run_id]
        if len(self._first_step) > _MAX_CHOSEN:
            self._first_step.clear()

    def _open_captures(self, run_id: str) -> list[CaptureState]:
        """Return the unfinished captures of a run.

        Files are read only after the folder has changed, and while there are any.
        """
        changed = changed_at(self._root, run_id)
        if changed is None:
            return []
        if changed < 0 or changed != self._changed.get(run_id) or self._open.get(run_id):
            self._changed[run_id] = changed
            self._open[run_id] = open_captures(self._root, run_id)
        return self._open[run_id]

    def _send_command(self, state: CaptureState, streams: list[RankStream], ahead: int | None) -> None:
        """Send a request to each rank that has not reported on it, with the same first step for all."""
        request = state.request
        unreported = set(request.ranks) - {each.rank for each in state.ranks}
        if not unreported:
            return
        if request.kind not in OLDEST_KINDS:
            older = {stream.hello.rank for stream in streams if not _understands(stream, request)}
            self._refuse(unreported & older, request)
            self._send_to(unreported - older, streams, request)
            return
        chosen = [each.first_step for each in state.ranks if each.first_step is not None]
        first = request.first_step if request.first_step is not None else next(iter(chosen), None)
        if first is None:
            first = self._first_step.get(request.id, ahead)
        if first is None:  # the pace of the run is not known yet
            return
        self._first_step[request.id] = first
        self._send_to(unreported, streams, replace(request, first_step=first))

    def _refuse(self, ranks: Collection[int], request: CaptureRequest) -> None:
        """Answer for ranks that do not understand the request, once for each."""
        why = "it runs an older recorder, which has no stacks: update sfapp there"
        for rank in sorted(ranks):
            try:
                write_rank_capture(self._root, request, RankCapture(rank=rank, status="refused", why=why))
            except (CaptureError, PacketError) as error:
                self._failures.append(f"capture {request.id}: {error}")

    def _send_to(self, ranks: set[int], streams: list[RankStream], request: CaptureRequest) -> None:
        for stream in streams:
            hello = stream.hello
            if hello.rank in ranks:
                self._send(
                    stream,
                    CaptureCommand(
                        v=VERSION, rank=hello.rank, incarnation=hello.incarnation, request=request
                    ),
                )

    # ---- from the ranks -------------------------------------------------------------------------

    def receive(self, stream: RankStream, message: CaptureReport | CapturePiece) -> None:
        """Write a rank's message, in order and once, and acknowledge it.

        Pieces of a file are acknowledged with its last piece, so that a restarted aggregator gets them all. A
        message that can never be written is acknowledged too, because the rank keeps later ones until then.

        Raises:
            StreamError: this capture was not requested from this rank.
        """
        stream.next_capture_message = max(stream.next_capture_message, message.first)
        if message.number > stream.next_capture_message:
            return  # earlier messages were lost: the rank sends all of them again
        refusal: StreamError | None = None
        if message.number == stream.next_capture_message:
            try:
                if not self._write(stream, message):
                    return
            except StreamError as error:
                refusal = error
                if isinstance(message, CapturePiece):  # The other pieces are no file without it.
                    with suppress(OSError):
                        self._partial(stream, message).unlink()
            stream.next_capture_message += 1
        if isinstance(message, CaptureReport) or message.piece + 1 == message.pieces:
            hello, number = stream.hello, message.number + 1
            self._send(
                stream, CaptureAck(v=VERSION, rank=hello.rank, incarnation=hello.incarnation, number=number)
            )
        if refusal is not None:
            raise refusal

    def _write(self, stream: RankStream, message: CaptureReport | CapturePiece) -> bool:
        """Write a message to disk; return False if that failed and must be repeated.

        Raises:
            StreamError: it cannot be written at all.
        """
        try:
            request = self._requested(stream, message.capture)
            if isinstance(message, CaptureReport):
                windows = tuple(map(stream.number_in_run, message.state.windows))
                rank = message.state.rank if request.kind == "stacks" else stream.hello.rank
                if rank not in request.ranks:
                    raise CaptureError(f"rank {rank} was not asked")
                state = replace(message.state, rank=rank, windows=windows)
                write_rank_capture(self._root, request, state)
            else:
                self._add_piece(stream, request, message)
        except CaptureError as error:  # sending it again would not help
            raise StreamError(f"capture {message.capture}: {error}") from error
        except (PacketError, OSError) as error:
            self._failures.append(f"capture {message.capture}: {error}")
            if isinstance(message, CapturePiece):  # repeat the file from its first piece
                stream.next_capture_message = message.number - min(message.piece, message.number)
            return False
        return True

    def _requested(self, stream: RankStream, capture: str) -> CaptureRequest:
        path = request_path(self._root, stream.hello.run_id, capture)
        try:
            request = read_request(path, stream.hello.run_id)
        except CaptureError as error:
            if (passing := passing_cause(error)) is not None:
                raise passing from error
            raise StreamError(f"capture {capture!r} was not requested: {error}") from error
        if stream.hello.rank not in request.ranks:
            raise StreamError(f"capture {capture!r} was not requested from rank {stream.hello.rank}")
        return request

    def _add_piece(self, stream: RankStream, request: CaptureRequest, piece: CapturePiece) -> None:
        """Append a piece to the partial file, and write the file after the last piece.

        A process sends one file after the other, so it has one partial file. Two may be the same rank, as of
        two jobs of one name.

        Raises:
            StreamError: the pieces are of another kind than was requested, or larger than any file of it.
        """
        if (piece.holds == "events") != (request.kind == "profile"):
            raise StreamError(f"capture {request.id}: {piece.holds} were not requested")
        partial = self._partial(stream, piece)
        most = MAX_BYTES if piece.holds == "events" else most_bytes(piece.holds)
        if piece.piece and not os.path.lexists(partial):
            raise StreamError(f"capture {request.id}: an earlier piece of the file was refused")
        with open_regular(partial, "ab" if piece.piece else "wb", follow_links=False) as file:
            if file.seek(0, os.SEEK_END) + len(piece.content) > most:
                raise StreamError(f"capture {request.id}: more than {most:,} bytes of {piece.holds}")
            file.write(piece.content)
        if piece.piece + 1 < piece.pieces:
            return
        try:
            if piece.holds == "events":
                self._write_events(stream, piece, partial)
            else:
                content = read_regular(partial, most, follow_links=False)
                write_file(self._root, request, piece.holds, piece.of_rank, content)
        except CaptureError as error:  # sending it again would not help
            self._failures.append(f"capture {request.id}: {error}")
        finally:
            partial.unlink(missing_ok=True)

    def _partial(self, stream: RankStream, piece: CapturePiece) -> Path:
        rank, process = stream.hello.rank, name_in_path(stream.hello.incarnation)
        path = rank_path(self._root, stream.hello.run_id, piece.capture, rank)
        return path.with_name(f".{piece.capture}.rank{rank}.{process}.part")

    def _write_events(self, stream: RankStream, piece: CapturePiece, partial: Path) -> None:
        rank, run_id = stream.hello.rank, stream.hello.run_id
        try:
            events = _on_aggregator_clock(read_operators(partial), rank, piece.clock_offset_ns)
        except PacketError as error:  # sending it again would not help
            self._failures.append(f"capture {piece.capture}: {error}")
            return
        write_captured(events, self._root, run_id, stream.number_in_run(piece.window), rank)


def _understands(stream: RankStream, request: CaptureRequest) -> bool:
    """Return whether a rank's recorder understands a request."""
    understands = stream.hello.understands
    return request.kind in (OLDEST_KINDS if understands is UNSET else understands)


def _on_aggregator_clock(operators: Operators, rank: int, offset_ns: int) -> Operators:
    """Return a rank's events with times of the aggregator's clock.

    Raises:
        PacketError: the events are of another rank.
    """
    if operators.ranks != (rank,):
        raise PacketError(f"rank {rank} sent events of ranks {operators.ranks}")
    return replace(
        operators,
        start_ns_E=operators.start_ns_E + offset_ns,
        end_ns_E=operators.end_ns_E + offset_ns,
    )
