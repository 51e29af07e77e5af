"""The aggregator's end of captures: requests from the files beside the packets to the ranks that stream, and
what ranks say of them, their events too, back into such files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from sfapp.errors import CaptureError, PacketError, StreamError
from sfapp.model import Operators
from sfapp.model.capture import CaptureRequest
from sfapp.packets import operators_path, read_operators, write_operators
from sfapp.packets.capture_mailbox import StepPace
from sfapp.packets.captures import (
    asked,
    changed_at,
    rank_path,
    read_request,
    request_path,
    state_of,
    tell,
)
from sfapp.stream.messages import (
    VERSION,
    CaptureAsked,
    CaptureHeard,
    CapturePiece,
    CaptureSaid,
    FromAggregator,
)
from sfapp.stream.peers import Peer

LOOK_SECONDS = 1.0
_AHEAD_SECONDS = 8.0
"""How far ahead a first step is chosen: ranks hear of it within a fraction of a second, and then load what
the profiler needs, the first time."""

_MOST_RUNS, _MOST_CHOSEN = 64, 1000

Send = Callable[[Peer, FromAggregator], None]


class Forwarding:
    """Called on the aggregator's thread alone.

    Args:
        root: the packet directory.
        send: to a rank.
        failures: what goes wrong is put there.
    """

    def __init__(self, root: Path, send: Send, failures: list[str]) -> None:
        self._root = root
        self._send = send
        self._failures = failures
        self._next_look = 0.0
        self._changed: dict[str, int] = {}
        self._open: dict[str, list[CaptureRequest]] = {}
        self._first_step: dict[str, int] = {}
        self._pace: dict[str, StepPace] = {}

    # ---- to the ranks ---------------------------------------------------------------------------

    def look(self, peers: Iterable[Peer], now: float) -> None:
        """Once a second, pass on what is asked for until its ranks say something of it."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        by_run: dict[str, list[Peer]] = {}
        for peer in peers:
            by_run.setdefault(peer.hello.run_id, []).append(peer)
        self._forget(by_run.keys())
        for run_id, of_run in list(by_run.items())[:_MOST_RUNS]:
            pace = self._pace.setdefault(run_id, StepPace())
            pace.add(now, max(peer.last_step for peer in of_run))
            for request in self._waiting(run_id):
                self._pass_on(request, of_run, pace.ahead(_AHEAD_SECONDS))

    def _forget(self, runs: Collection[str]) -> None:
        """Of runs that nobody streams any more."""
        for table in (self._pace, self._changed, self._open):
            for run_id in table.keys() - runs:
                del table[run_id]
        if len(self._first_step) > _MOST_CHOSEN:
            self._first_step.clear()

    def _waiting(self, run_id: str) -> list[CaptureRequest]:
        """The requests of a run that are not over; files are read only where the folder has changed."""
        changed = changed_at(self._root, run_id)
        if changed is None:
            return []
        if changed < 0 or changed != self._changed.get(run_id) or self._open.get(run_id):
            self._changed[run_id] = changed
            self._open[run_id] = [
                request
                for path in asked(self._root, run_id)
                if (request := self._request(path, run_id)) is not None
                and not state_of(self._root, request).is_over
            ]
        return self._open[run_id]

    def _request(self, path: Path, run_id: str) -> CaptureRequest | None:
        try:
            return read_request(path, run_id)
        except CaptureError:  # somebody else's mistake: it hides no other
            return None

    def _pass_on(self, request: CaptureRequest, peers: list[Peer], ahead: int | None) -> None:
        """To each rank that has not said anything of it; all with the same first step."""
        state = state_of(self._root, request)
        silent = set(request.ranks) - {each.rank for each in state.ranks}
        if not silent:
            return
        chosen = [each.first_step for each in state.ranks if each.first_step is not None]
        first = request.first_step if request.first_step is not None else next(iter(chosen), None)
        if first is None:
            first = self._first_step.get(request.id, ahead)
        if first is None:  # who is how far is not known yet
            return
        self._first_step[request.id] = first
        asked_for = replace(request, first_step=first)
        for peer in peers:
            hello = peer.hello
            if hello.rank in silent:
                self._send(
                    peer,
                    CaptureAsked(
                        v=VERSION, rank=hello.rank, incarnation=hello.incarnation, request=asked_for
                    ),
                )

    # ---- from the ranks -------------------------------------------------------------------------

    def take(self, peer: Peer, message: CaptureSaid | CapturePiece) -> None:
        """Write down what a rank says, in order and once. It hears of that where it may let go: not in the
        middle of a file.

        Raises:
            StreamError: nobody has asked this rank for it.
        """
        peer.captures_heard = max(peer.captures_heard, message.first)
        if message.number > peer.captures_heard:
            return  # what lies between was lost: all of it comes again
        if message.number == peer.captures_heard:
            if not self._is_written(peer, message):
                return
            peer.captures_heard += 1
        if isinstance(message, CaptureSaid) or message.piece + 1 == message.pieces:
            hello, number = peer.hello, message.number + 1
            self._send(
                peer, CaptureHeard(v=VERSION, rank=hello.rank, incarnation=hello.incarnation, number=number)
            )

    def _is_written(self, peer: Peer, message: CaptureSaid | CapturePiece) -> bool:
        request = self._asked_for(peer, message.capture)
        try:
            if isinstance(message, CaptureSaid):
                moved = tuple(window + peer.offset for window in message.said.windows)
                tell(self._root, request, replace(message.said, rank=peer.hello.rank, windows=moved))
            else:
                self._add_piece(peer, request, message)
        except (PacketError, OSError) as error:
            self._failures.append(f"capture {request.id}: {error}")
            if isinstance(message, CapturePiece):
                peer.captures_heard = message.number - min(message.piece, message.number)  # from its begin
            return False
        return True

    def _asked_for(self, peer: Peer, capture: str) -> CaptureRequest:
        path = request_path(self._root, peer.hello.run_id, capture)
        try:
            request = read_request(path, peer.hello.run_id)
        except CaptureError as error:
            raise StreamError(f"a capture that nobody has asked for: {error}") from error
        if peer.hello.rank not in request.ranks:
            raise StreamError(f"capture {capture} was not asked of rank {peer.hello.rank}")
        return request

    def _add_piece(self, peer: Peer, request: CaptureRequest, piece: CapturePiece) -> None:
        """Put a piece behind those that have come, and the file where it belongs once it is whole."""
        rank, run_id = peer.hello.rank, peer.hello.run_id
        half = rank_path(self._root, run_id, request.id, rank).with_name(
            f".{request.id}.{piece.window}.rank{rank}.part"
        )
        with half.open("ab" if piece.piece else "wb") as file:
            file.write(piece.content)
        if piece.piece + 1 < piece.pieces:
            return
        try:
            events = _placed(read_operators(half), rank, piece.clock_offset_ns)
        except PacketError as error:  # it would be no better the next time
            self._failures.append(f"capture {request.id}: {error}")
            return
        finally:
            half.unlink(missing_ok=True)
        window = piece.window + peer.offset
        write_operators(events, run_id, window, operators_path(self._root, run_id, window, rank))


def _placed(operators: Operators, rank: int, offset_ns: int) -> Operators:
    """The events of a rank on the aggregator's clock.

    Raises:
        PacketError: they are of another rank.
    """
    if operators.ranks != (rank,):
        raise PacketError(f"events of rank {operators.ranks} from rank {rank}")
    return replace(
        operators,
        start_ns_E=operators.start_ns_E + offset_ns,
        end_ns_E=operators.end_ns_E + offset_ns,
    )
