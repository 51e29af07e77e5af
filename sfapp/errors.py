"""Every error sfapp raises on purpose, in one tree:

SfappError
├── WindowError            a window cannot be built from these arrays
├── ComparisonError        these windows cannot be compared; the message says what differs
├── ParseError             text of a user names no window or no ranks
├── GateError              a gate has an unknown name or a value outside its range
├── PacketError            a packet file is refused; carries path, row and column
│   └── PacketVersionError the file is of a newer format than this reader
├── StoreError             the store cannot do what was asked
│   ├── StoreBusyError     another process holds the store
│   └── WindowNotFoundError  no such run, window or group in the store
├── IncidentError          notes and incidents cannot be read, written or imported
│   └── IncidentNotFoundError  no such note, incident or edit
├── ReportError            a report cannot be written as asked, or holds what its format cannot show
├── RecorderError          the recorder was used wrongly at construction (never raised while training)
│   └── IdentityError      what launchers say of this process's place in its job contradicts itself
├── CaptureError           a capture cannot be asked for like this, or a request in a file is wrong
├── TraceError             a trace of another tool is refused; carries path and place
├── MetricsError           a file of samples is refused: it is no such file, or of a newer format
├── StreamError            a stream of steps cannot be opened as asked, or a message in it is wrong
│   └── StreamVersionError the message is of a newer version than this aggregator
├── RunError               a training script cannot be started as asked
├── ServeError             the app cannot be served as asked: path, address or token
├── RemoteError            an app elsewhere cannot be asked: nobody there, no token, another version
└── MissingExtraError      a command needs an optional part of sfapp that is not installed

The command line catches ``SfappError`` once and prints it; nothing else is caught there.
"""

from __future__ import annotations

from sfapp.terminal import printable


class SfappError(Exception):
    """Base of all errors that sfapp raises on purpose. The message says what, where and what to do."""


class WindowError(SfappError):
    """A window cannot be built: shapes, types or names do not fit together."""


class ComparisonError(SfappError):
    """These windows or runs cannot be compared; the message says what differs and what to compare instead."""


class ParseError(SfappError, ValueError):
    """Text of a user names no window or no ranks; the message says what the text must be."""


class GateError(SfappError):
    """A gate has an unknown name or a value outside its range."""


class PacketError(SfappError):
    """A packet file is refused.

    Attributes:
        reason: one line saying what is wrong.
        path: the file, where known.
        row: zero-based row in the file, where the fault lies in a row.
        column: the column's name, where the fault lies in a column.
    """

    def __init__(
        self, reason: str, *, path: str | None = None, row: int | None = None, column: str | None = None
    ) -> None:
        self.reason = reason
        self.path = path
        self.row = row
        self.column = column
        super().__init__(self.describe())

    @property
    def fault(self) -> str:
        """What is wrong and where in the file, in one line: ``row R, column C: reason``."""
        place = ", ".join(
            part
            for part in (
                f"row {self.row}" if self.row is not None else "",
                f"column {self.column!r}" if self.column is not None else "",
            )
            if part
        )
        return ": ".join(part for part in (place, self.reason) if part)

    def describe(self) -> str:
        """The fault with its file, in one line: ``path: row R, column C: reason``."""
        path = self.path or ""
        return ": ".join(part for part in (printable(path), self.fault) if part)


class PacketVersionError(PacketError):
    """The file is of a newer packet format than this reader knows."""


class StoreError(SfappError):
    """The store cannot do what was asked."""


class StoreBusyError(StoreError):
    """Another process holds the store; the message names it."""


class WindowNotFoundError(StoreError):
    """No such run, window or group in the store."""


class IncidentError(SfappError):
    """Notes and incidents cannot be read, written or imported."""


class IncidentNotFoundError(IncidentError):
    """No such note, incident or edit."""


class ReportError(SfappError):
    """A report cannot be written as asked, or holds what its format cannot show."""


class RecorderError(SfappError):
    """The recorder was constructed wrongly. Never raised while training runs."""


class IdentityError(RecorderError):
    """What launchers say of this process's place in its job contradicts itself or leaves it open; the message
    names variables and values."""


class CaptureError(SfappError):
    """A capture cannot be asked for like this, or a request that lies in a file is none."""


class TraceError(SfappError):
    """A trace of another tool, or a mapping file for it, is refused.

    Attributes:
        reason: one line saying what is wrong.
        path: the file, where known.
        place: where in the file: a byte, an event, a row, a table; None where it is the whole file.
    """

    def __init__(self, reason: str, *, path: str | None = None, place: str | None = None) -> None:
        self.reason = reason
        self.path = path
        self.place = place
        shown = None if path is None else printable(path)
        super().__init__(": ".join(part for part in (shown, place, reason) if part))


class MetricsError(SfappError):
    """A file of samples is refused: its first line is no header of ours, or of a newer format."""


class StreamError(SfappError):
    """A stream cannot be opened as asked (an address that needs keys, say), or a message in it is wrong."""


class StreamVersionError(StreamError):
    """The message is of a newer version than this aggregator knows."""


class RunError(SfappError):
    """A training script cannot be started as asked; the message says how."""


class ServeError(SfappError):
    """The app cannot be served as asked: a path is missing, the address is taken, a token is needed."""


class RemoteError(SfappError):
    """An app elsewhere cannot be asked: nobody answers, the token is wrong, or it is of another version."""


class MissingExtraError(SfappError):
    """A command needs an optional part of sfapp that is not installed; the message says which."""


def describe_error(error: BaseException) -> str:
    """Return an error's type and message as one line of at most 500 characters."""
    return printable(f"{type(error).__name__}: {' '.join(str(error).split())}", 500)
