"""Read and write capture requests and the ranks' answers: small files next to a run's packets
(docs/capture.md).

``<root>/<run>/captures/<id>.json`` is the request, ``<id>.rank<r>.json`` the answer of one rank;
``stack_files`` has the stacks. All are written atomically; write access to the folder is the permission to
request. Files that are read are bounded and checked.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from sfapp.errors import CaptureError
from sfapp.files import PASSING, read_regular, system_error
from sfapp.model.capture import (
    CAPTURE_STEPS,
    DEFAULT_LIMITS,
    STACKS_EXPIRE_SECONDS,
    CaptureRequest,
    CaptureState,
    CaptureStatus,
    RankCapture,
)
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.packets.paths import OPERATORS_SUFFIX, folder_name, operators_path
from sfapp.packets.write import write_whole
from sfapp.terminal import first_line, printable, quoted

FOLDER = "captures"
TRACE_SUFFIX = ".trace.json.gz"

MAX_BYTES = 2**16
"""Largest file that is read, in bytes."""

_PASSING = PASSING | {errno.EACCES}

MOST_REQUESTS = 200
"""Number of a run's newest requests that are read."""

MOST_OPEN = 32
"""Number of a run's newest requests within their time that its ranks get; no more are written."""

_CLOCK_RESOLUTION_NS = 10**9

_REQUEST_NAME = re.compile(r"(?P<id>[a-z0-9][a-z0-9-]{0,63})\.json")
_OVER: tuple[CaptureStatus, ...] = ("done", "refused", "expired")
_REQUEST = msgspec.json.Decoder(CaptureRequest)
_RANK = msgspec.json.Decoder(RankCapture)


def captures_folder(root: Path, run_id: str) -> Path:
    """Return the folder of a run's requests."""
    return Path(root) / folder_name(run_id) / FOLDER


def request_path(root: Path, run_id: str, capture: str) -> Path:
    """Return the path of one request."""
    return captures_folder(root, run_id) / f"{capture}.json"


def rank_path(root: Path, run_id: str, capture: str, rank: int) -> Path:
    """Return the path of one rank's answer to a request."""
    return captures_folder(root, run_id) / f"{capture}.rank{rank}.json"


def trace_path(root: Path, run_id: str, window: int, rank: int) -> Path:
    """Return the path, next to the packet, of a rank's trace that could not be converted into operator
    events.
    """
    path = operators_path(root, run_id, window, rank)
    return path.with_name(path.name.removesuffix(OPERATORS_SUFFIX) + TRACE_SUFFIX)


def new_id(now: datetime) -> str:
    """Return a unique id; later ids sort after earlier ones."""
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}-{secrets.token_hex(3)}"


def new_request(
    run_id: str,
    ranks: Iterable[int],
    steps: int = CAPTURE_STEPS,
    *,
    first_step: int | None = None,
    reason: str = "",
    asked_by: str = "",
) -> CaptureRequest:
    """Return a new request with a unique id.

    Raises:
        CaptureError: a value is outside its bounds.
    """
    now = datetime.now(UTC)
    return CaptureRequest(
        id=new_id(now),
        run_id=run_id,
        ranks=tuple(sorted(set(ranks))),
        steps=steps,
        first_step=first_step,
        reason=reason,
        asked_by=asked_by,
        asked_at=now,
    )


def new_stacks_request(
    run_id: str, ranks: Iterable[int], *, reason: str = "", asked_by: str = ""
) -> CaptureRequest:
    """Return a new request for the present stacks of these ranks.

    Raises:
        CaptureError: a value is outside its bounds.
    """
    return replace(
        new_request(run_id, [0], 1, reason=reason, asked_by=asked_by),
        ranks=tuple(sorted(set(ranks))),
        steps=0,
        kind="stacks",
    )


def ask_for_capture(root: Path, request: CaptureRequest) -> Path:
    """Write a request to where the run's recorders look about once a second, and return its path.

    Raises:
        CaptureError: a request with this id exists, or the run has as many as are passed on.
        PacketError: the file cannot be written.
    """
    path = request_path(root, request.run_id, request.id)
    if os.path.exists(path):  # Path.exists raises where that may not be looked for.
        raise CaptureError(f"capture {request.id} exists already: {path}")
    names = file_names(root, request.run_id)
    if sum(1 for _ in _within_their_time(root, request.run_id, names)) >= MOST_OPEN:
        raise CaptureError(f"run {quoted(request.run_id)} has {MOST_OPEN} new requests: try again later")
    try:
        content = msgspec.json.encode(request)
    except UnicodeEncodeError as error:  # Arguments of a command line may hold any bytes.
        raise CaptureError("capture request: a text is not valid Unicode") from error
    write_next_to(path, content)
    return path


def write_rank_capture(root: Path, request: CaptureRequest, answer: RankCapture) -> Path:
    """Write a rank's answer to a request, replacing its earlier one.

    Raises:
        PacketError: the file cannot be written.
    """
    path = rank_path(root, request.run_id, request.id, answer.rank)
    write_next_to(path, msgspec.json.encode(answer))
    return path


def write_next_to(path: Path, content: bytes) -> None:
    """Write a file in a folder of requests atomically. A folder that is a link is refused: it could make this
    process replace files anywhere.

    Raises:
        CaptureError: the folder is a link.
        PacketError: the file cannot be written.
    """
    if os.path.islink(path.parent):
        raise CaptureError(f"{printable(str(path.parent))} is a link: nothing is written there")
    write_whole(path, content)


def read_request(path: Path, run_id: str | None = None) -> CaptureRequest:
    """Return the request in a file.

    Args:
        run_id: the run it must be for, if known.

    Raises:
        CaptureError: it cannot be read, is no request, not named as its id, or for another run.
    """
    try:
        request = _REQUEST.decode(_bounded(path))
    except FileNotFoundError as error:
        raise CaptureError(f"{printable(str(path))} no longer exists") from error
    except (*UNREADABLE_JSON, CaptureError) as error:
        raise CaptureError(
            f"{printable(str(path))} is not a capture request: {first_line(str(error))}"
        ) from error
    if path.name != f"{request.id}.json":
        raise CaptureError(f"{printable(str(path))} is not a capture request: its id is {quoted(request.id)}")
    if run_id is not None and request.run_id != run_id:
        raise CaptureError(f"{printable(str(path))} is for another run, {quoted(request.run_id)}")
    return request


def passing_cause(error: CaptureError) -> OSError | None:
    """Return the cause of an error if it may pass, such as a disk that does not answer; None otherwise."""
    cause = system_error(error)
    return cause if cause is not None and cause.errno in _PASSING else None


def read_rank(root: Path, request: CaptureRequest, rank: int) -> RankCapture | None:
    """Return a rank's answer to a request; None if it has not answered yet.

    Raises:
        CaptureError: its file cannot be read, or is no answer of this rank.
    """
    path = rank_path(root, request.run_id, request.id, rank)
    try:
        found = _RANK.decode(_bounded(path))
    except FileNotFoundError:
        return None
    except (*UNREADABLE_JSON, CaptureError) as error:
        raise CaptureError(
            f"{printable(str(path))} is not an answer to a capture request: {first_line(str(error))}"
        ) from error
    if found.rank != rank:
        raise CaptureError(f"{printable(str(path))} is of another rank: {found.rank}")
    return found


def changed_at(root: Path, run_id: str) -> int | None:
    """Return a number that changes with every change of a run's captures, cheap enough to be polled.

    None before the first request; negative while changes are too recent for the file system's clock.
    """
    try:
        changed = captures_folder(root, run_id).stat().st_mtime_ns
    except OSError:
        return None
    return changed if time.time_ns() - changed > _CLOCK_RESOLUTION_NS else -1


def file_names(root: Path, run_id: str) -> frozenset[str]:
    """Return the names of all files of a run's requests and answers; empty if there are none."""
    try:
        return frozenset(os.listdir(captures_folder(root, run_id)))
    except OSError:  # There are no requests, or the folder cannot be read.
        return frozenset()


def request_files(root: Path, run_id: str, names: Collection[str] | None = None) -> list[Path]:
    """Return the files of a run's newest requests, by name and so by time; empty if there are none.

    Args:
        names: from ``file_names``, if known.
    """
    names = file_names(root, run_id) if names is None else names
    wanted = sorted(name for name in names if _REQUEST_NAME.fullmatch(name))[-MOST_REQUESTS:]
    return [captures_folder(root, run_id) / name for name in wanted]


def captures(root: Path, run_id: str) -> list[CaptureState]:
    """Return the newest captures of a run in order of time, with their state so far.

    Invalid requests are skipped, and an invalid answer counts as none, so that one bad file hides no capture.
    """
    found = []
    names = file_names(root, run_id)
    for path in request_files(root, run_id, names):
        try:
            found.append(state_of(root, read_request(path, run_id), names))
        except CaptureError:
            continue
    return found


def open_captures(root: Path, run_id: str) -> list[CaptureState]:
    """Return the unfinished captures of a run in order of time.

    Only the newest requests within their time are examined.
    """
    names = file_names(root, run_id)
    found = [state_of(root, request, names) for request in _within_their_time(root, run_id, names)]
    return [state for state in reversed(found) if not state.is_over]


def _within_their_time(root: Path, run_id: str, names: Collection[str]) -> Iterator[CaptureRequest]:
    """Yield the newest requests that may not have ended, at most ``MOST_OPEN``, the newest first."""
    now = datetime.now(UTC)
    count = 0
    for path in reversed(request_files(root, run_id, names)):
        try:
            request = read_request(path, run_id)
        except CaptureError:  # An invalid file must not block the other requests.
            continue
        if count < MOST_OPEN and abs(now - request.asked_at) <= 2 * _expires(request):
            count += 1
            yield request


def state_of(root: Path, request: CaptureRequest, names: Collection[str] | None = None) -> CaptureState:
    """Return the state of one request so far.

    Args:
        names: from ``file_names``; no other file is opened then, which matters with many requests.
    """
    answers = []
    for rank in request.ranks:
        if names is not None and f"{request.id}.rank{rank}.json" not in names:
            continue
        try:
            found = read_rank(root, request, rank)
        except CaptureError:
            continue
        if found is not None:
            answers.append(found)
    return combined_state(request, answers, datetime.now(UTC))


def combined_state(request: CaptureRequest, answers: Sequence[RankCapture], now: datetime) -> CaptureState:
    """Return a request and its ranks' answers as one state."""
    done = tuple(each.rank for each in answers if each.status == "done")
    whys: dict[str, list[int]] = {}
    for each in answers:
        if each.why:
            whys.setdefault(each.why, []).append(each.rank)
    why = "; ".join(f"rank {', '.join(map(str, ranks))}: {text}" for text, ranks in whys.items())
    return CaptureState(
        request=request,
        status=_status(request, answers, now),
        ranks_done=done,
        why=why,
        ranks=tuple(answers),
    )


def _status(request: CaptureRequest, answers: Sequence[RankCapture], now: datetime) -> CaptureStatus:
    """Return the status of all ranks together.

    A capture that has not begun in time has expired. One that is not done long after its end never will be,
    because its process was killed.
    """
    over = [each.status for each in answers if each.status in _OVER]
    runs = any(each.status == "running" for each in answers)
    expires = _expires(request)
    age = abs(now - request.asked_at)  # A time that lies ahead must not keep it open without end.
    if len(over) == len(request.ranks) or age > (2 * expires if runs else expires):
        return next((status for status in ("done", "refused") if status in over), "expired")
    return "running" if runs or "done" in over else "asked"


def _expires(request: CaptureRequest) -> timedelta:
    """Return the time after which a request that no rank has begun has expired."""
    is_stacks = request.kind == "stacks"
    return timedelta(seconds=STACKS_EXPIRE_SECONDS if is_stacks else DEFAULT_LIMITS.expires_seconds)


def _bounded(path: Path) -> bytes:
    """Return a small file's bytes. Pipes and links are refused.

    Raises:
        CaptureError: it cannot be read, is no regular file or too large.
        FileNotFoundError: it does not exist.
    """
    try:
        return read_regular(path, MAX_BYTES, follow_links=False)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CaptureError(f"cannot be read: {first_line(error.strerror or str(error))}") from error
