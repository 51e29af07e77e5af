"""Read and write the stacks of ranks and their Flight Recorder dumps next to the request (docs/stacks.md).

``captures/<id>.rank<r>.stacks.json`` holds one rank's stacks. ``captures/<id>.dumps/rank_<r>`` is the rank's
dump as torch wrote it, for ``sfapp hang``. Files that are read are bounded and checked.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from sfapp.errors import CaptureError
from sfapp.files import read_regular, subfolders
from sfapp.model.capture import CaptureRequest
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.model.stacks import RankStacks, ThreadStack
from sfapp.packets.capture_mailbox import FileKind
from sfapp.packets.captures import FOLDER, captures_folder, rank_path, read_request, write_next_to
from sfapp.terminal import first_line, printable

MAX_STACKS_BYTES = 256 << 10
"""Largest file of a rank's stacks. Sixty threads of twenty frames take half of it."""

MAX_DUMP_BYTES = 16 << 20
"""Largest Flight Recorder dump that is kept of a rank; one of 2,000 calls has about 1 MB."""

MOST_DUMPS_BYTES = 1 << 30
"""Largest size of the dumps of one request; further ones are not kept."""

MOST_STACKS_BYTES = 64 << 20
"""Largest size of the stacks of one request that are read. Those of 1,024 ranks with 20 threads take it."""

DUMPS_SUFFIX = ".dumps"

_STACKS = msgspec.json.Decoder(RankStacks)


def stacks_path(root: Path, request: CaptureRequest, rank: int) -> Path:
    """Return the path of a rank's stacks."""
    path = rank_path(root, request.run_id, request.id, rank)
    return path.with_name(f"{path.stem}.stacks.json")


def dump_path(root: Path, request: CaptureRequest, rank: int) -> Path:
    """Return the path of a rank's Flight Recorder dump."""
    folder = captures_folder(root, request.run_id) / f"{request.id}{DUMPS_SUFFIX}"
    return folder / f"rank_{rank}"


def encode_stacks(stacks: RankStacks) -> bytes:
    """Return stacks as JSON of bounded size: threads are left out from the last, then outer frames."""
    while len(content := msgspec.json.encode(stacks)) > MAX_STACKS_BYTES:
        threads = stacks.threads
        if len(threads) > 1:
            threads = threads[: len(threads) // 2]
        else:
            threads = tuple(_without_outer_half(each) for each in threads)
        stacks = replace(stacks, threads=threads)
    return content


def _without_outer_half(thread: ThreadStack) -> ThreadStack:
    return replace(thread, frames=thread.frames[: len(thread.frames) // 2])


def decode_stacks(content: bytes) -> RankStacks:
    """Return the stacks in JSON.

    Raises:
        CaptureError: these are no stacks.
    """
    try:
        return _STACKS.decode(content)
    except (*UNREADABLE_JSON, CaptureError) as error:
        raise CaptureError(f"no stacks of a rank: {first_line(str(error))}") from error


def write_file(root: Path, request: CaptureRequest, kind: FileKind, rank: int, content: bytes) -> Path:
    """Write the stacks or the dump of a rank and return the path.

    Raises:
        CaptureError: these are no stacks of the rank, or the content or all dumps are larger than the limit.
        PacketError: the file cannot be written.
    """
    if len(content) > most_bytes(kind):
        raise CaptureError(f"{kind} of {len(content):,} bytes: the limit is {most_bytes(kind):,}")
    if rank not in request.ranks:
        raise CaptureError(f"{kind} of rank {rank} was not requested")
    if kind == "stacks" and decode_stacks(content).rank != rank:
        raise CaptureError(f"stacks of another rank than {rank}")
    path = stacks_path(root, request, rank) if kind == "stacks" else dump_path(root, request, rank)
    if kind == "dump":
        _check_room(path, len(content))
    write_next_to(path, content)
    return path


def _check_room(path: Path, size: int) -> None:
    """Check that a dump keeps all dumps of its request within the limit.

    Raises:
        CaptureError: it does not, or the folder of requests is a link.
    """
    folder = path.parent
    if os.path.islink(folder.parent):
        raise CaptureError(f"{printable(str(folder.parent))} is a link: nothing is written there")
    try:
        with os.scandir(folder) as entries:
            kept = sum(each.stat(follow_symlinks=False).st_size for each in entries if each.name != path.name)
    except OSError:  # The first dump of this request.
        kept = 0
    if kept + size > MOST_DUMPS_BYTES:
        limit = f"{MOST_DUMPS_BYTES:,}"
        raise CaptureError(f"the dumps of this request have {kept:,} bytes: the limit is {limit}")


def most_bytes(kind: FileKind) -> int:
    """Return the size of the largest file of a kind."""
    return MAX_STACKS_BYTES if kind == "stacks" else MAX_DUMP_BYTES


def read_stacks(
    root: Path, request: CaptureRequest, names: Collection[str] | None = None
) -> Iterator[RankStacks]:
    """Yield the stacks of the request's ranks that are there, as long as their size is within the limit.

    Invalid files are skipped. Equal threads share their memory.

    Args:
        names: from ``captures.file_names``; no other file is opened then.
    """
    left = MOST_STACKS_BYTES
    known: dict[ThreadStack, ThreadStack] = {}
    for rank in request.ranks:
        path = stacks_path(root, request, rank)
        if names is not None and path.name not in names:
            continue
        try:
            content = read_regular(path, MAX_STACKS_BYTES, follow_links=False)
            found = decode_stacks(content)
        except (OSError, CaptureError):  # A damaged file must not hide the stacks of the other ranks.
            continue
        left -= len(content)
        if left < 0:
            return
        if found.rank == rank:
            yield replace(found, threads=tuple(known.setdefault(each, each) for each in found.threads))


def newest_dumps(folder: Path) -> Path | None:
    """Return the newest folder of Flight Recorder dumps in a packet folder, a run's folder or its captures.

    None if there is none: then the folder is of another kind.
    """
    places = [folder] if folder.name == FOLDER else []
    places += [each / FOLDER for each in (folder, *subfolders(folder))]
    found = [
        path
        for place in places
        for path in subfolders(place)
        if path.name.endswith(DUMPS_SUFFIX) and not path.is_symlink()
    ]
    return max(found, key=lambda path: path.name, default=None)  # Names begin with the time of the request.


def asked_ranks(dumps: Path) -> tuple[int, ...]:
    """Return the ranks that were asked for the dumps in this folder; none if no request for them is there."""
    if dumps.suffix != DUMPS_SUFFIX:
        return ()
    try:
        return read_request(dumps.with_suffix(".json")).ranks
    except CaptureError:
        return ()
