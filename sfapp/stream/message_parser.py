"""Parse messages between ranks and the aggregator, which are not trusted."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from sfapp.errors import CaptureError, StreamError, StreamVersionError, describe_error
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.stream.messages import MAX_MESSAGE_BYTES, VERSION, FromAggregator, FromRank, Rank, Token


class _VersionHeader(Struct):
    """The version of a message, without its other fields."""

    v: int | None = None


class _SenderIdentity(Struct):
    """The sender of a message, without its other fields."""

    rank: Rank
    incarnation: Token


_FROM_RANK = msgspec.msgpack.Decoder(FromRank)
_FROM_AGGREGATOR = msgspec.msgpack.Decoder(FromAggregator)
_VERSION_HEADER = msgspec.msgpack.Decoder(_VersionHeader)
_SENDER_IDENTITY = msgspec.msgpack.Decoder(_SenderIdentity)


def decode_from_rank(raw: bytes | memoryview) -> FromRank:
    """Parse a message from a rank.

    Raises:
        StreamVersionError: the message has a newer version.
        StreamError: the message is too long, cannot be parsed, or breaks a rule.
    """
    if len(raw) > MAX_MESSAGE_BYTES:
        raise StreamError(f"message of {len(raw):,} bytes: the limit is {MAX_MESSAGE_BYTES:,}")
    try:
        message: FromRank = _FROM_RANK.decode(raw)
    except (*UNREADABLE_JSON, CaptureError) as error:
        raise _decode_error(raw, error) from error
    _check_version(message.v)
    return message


def decode_from_aggregator(raw: bytes) -> FromAggregator:
    """Parse an answer of the aggregator.

    Raises:
        StreamVersionError: the answer has a newer version.
        StreamError: the answer cannot be parsed.
    """
    try:
        message: FromAggregator = _FROM_AGGREGATOR.decode(raw)
    except (*UNREADABLE_JSON, CaptureError) as error:
        raise StreamError(f"invalid answer from the aggregator: {describe_error(error)}") from error
    _check_version(message.v)
    return message


def read_sender(raw: bytes | memoryview) -> tuple[int, str] | None:
    """Return rank and incarnation of a message of any version, or None if it has none."""
    try:
        sender = _SENDER_IDENTITY.decode(raw)
    except UNREADABLE_JSON:
        return None
    return sender.rank, sender.incarnation


def _decode_error(raw: bytes | memoryview, cause: Exception) -> StreamError:
    """Return the error for a message that is not valid in this version: the version, if that differs."""
    try:
        version = _VERSION_HEADER.decode(raw).v
        if version is not None:
            _check_version(version)
    except StreamError as error:
        return error
    except UNREADABLE_JSON:
        pass
    return StreamError(f"invalid message: {describe_error(cause)}")


def _check_version(version: int) -> None:
    if version > VERSION:
        raise StreamVersionError(
            f"messages of version {version}, newer than version {VERSION}, the newest understood here: "
            "install a newer sfapp where the aggregator runs"
        )
    if version < VERSION:
        raise StreamError(f"messages of version {version}: this sfapp understands version {VERSION}")
