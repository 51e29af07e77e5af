"""Every error that sfapp raises deliberately, as one tree:

SfappError
├── WindowError            a window cannot be built from these arrays
├── ComparisonError        these windows cannot be compared; the message says what differs
├── ParseError             a text names no window or no ranks
├── GateError              a gate has an unknown name or a value outside its range
├── PacketError            a packet file is rejected; carries path, row and column
│   └── PacketVersionError the file is of a newer format than this reader
├── StoreError             the store cannot answer or be written
│   ├── StoreBusyError     another process holds the store
│   ├── WindowNotFoundError  no such run, window or group in the store
│   └── StorageError       an object store cannot be reached, refuses access or has no such bucket
├── IncidentError          notes and incidents cannot be read, written or imported
│   └── IncidentNotFoundError  no such note, incident or edit
├── ReportError            a report cannot be written in the requested format
├── RecorderError          the recorder was constructed wrongly (never raised while training)
│   └── IdentityError      the launcher's variables contradict each other or leave the rank open
├── CaptureError           a capture request is invalid
├── TraceError             a trace of another tool is rejected; carries path and place
├── MetricsError           a sample file is rejected: another kind of file, or of a newer format
├── StreamError            a stream cannot be opened as requested, or holds an invalid message
│   └── StreamVersionError the message is of a newer version than this aggregator
├── RunError               a training script cannot be started as requested
├── ServeError             the app cannot be served: path, address or token
├── RemoteError            a remote app does not answer, or its token or version differs
├── AlertError             a target of alerts, their state or a time is invalid
│   └── DeliveryError      a target did not accept a message
├── TemporaryFolderError   there is no place for a folder of temporary files
└── MissingExtraError      an optional dependency is not installed

The command line catches ``SfappError`` once and prints it, and translates a missing module into a
``MissingExtraError``; nothing else is caught there.
"""

from __future__ import annotations

from sfapp.terminal import printable


class SfappError(Exception):
    """Base of all errors that sfapp raises deliberately. The message says what is wrong and what to do."""


class WindowError(SfappError):
    """A window cannot be built: shapes, types or names do not match."""


class ComparisonError(SfappError):
    """These windows or runs cannot be compared; the message says what differs and what to compare instead."""


class ParseError(SfappError, ValueError):
    """A text names no window or no ranks; the message says the form that it must have."""


class OptionError(SfappError):
    """A request has an option that its address does not have, or has one twice."""


class TemporaryFolderError(SfappError, OSError):
    """There is no place for a folder of temporary files; the message says what to set."""


class GateError(SfappError):
    """A gate has an unknown name or a value outside its range."""


class PacketError(SfappError):
    """A packet file is rejected.

    Attributes:
        reason: the fault in one line.
        path: the file, where known.
        row: zero-based row in the file, where the fault is in a row.
        column: the column's name, where the fault is in a column.
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
        """Return the fault and its place in the file, in one line: ``row R, column C: reason``."""
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
        """Return the fault with its file, in one line: ``path: row R, column C: reason``."""
        path = self.path or ""
        return ": ".join(part for part in (printable(path), self.fault) if part)


class PacketVersionError(PacketError):
    """The file has a newer packet format than this version of sfapp can read."""


class StoreError(SfappError):
    """The store cannot answer or be written."""


class StoreFailedError(StoreError):
    """The store is closed, or its file cannot be used, for example because the disk is full; a server opens
    it again until it can."""


class StoreBusyError(StoreError):
    """Another process holds the store; the message names it."""


class DamagedStoreError(StoreError):
    """The store holds what cannot be restored; ``Store.recover`` builds it again."""


class WindowNotFoundError(StoreError):
    """No such run, window or group in the store."""


class PacketsMissingError(StoreError):
    """The store has the verdict on a window, but its packets are not here, or not as they were read."""


class EngineError(StoreError):
    """A cluster cannot be reached, or its workers cannot run the tasks."""


class StorageError(StoreError):
    """An object store cannot be reached, refuses access or has no such bucket; or an address is invalid.

    The message holds no credentials.
    """


class IncidentError(SfappError):
    """Notes and incidents cannot be read, written or imported."""


class IncidentNotFoundError(IncidentError):
    """No such note, incident or edit."""


class ReportError(SfappError):
    """A report cannot be written in the requested format."""


class RecorderError(SfappError):
    """The recorder was constructed wrongly. Never raised while training runs."""


class IdentityError(RecorderError):
    """The launcher's variables contradict each other or leave the rank open; the message names them."""


class CaptureError(SfappError):
    """A capture request is invalid, on the command line or in its file."""


class TraceError(SfappError):
    """A trace of another tool, or a mapping file for it, is rejected.

    Attributes:
        reason: the fault in one line.
        path: the file, where known.
        place: where in the file: a byte, an event, a row, a table; None if it is the whole file.
    """

    def __init__(self, reason: str, *, path: str | None = None, place: str | None = None) -> None:
        self.reason = reason
        self.path = path
        self.place = place
        shown = None if path is None else printable(path)
        super().__init__(": ".join(part for part in (shown, place, reason) if part))


class MetricsError(SfappError):
    """A sample file is rejected: its first line is no header of sfapp, or of a newer format."""


class StreamError(SfappError):
    """A stream cannot be opened as requested (for example without keys), or holds an invalid message."""


class StreamVersionError(StreamError):
    """The message has a newer version than this aggregator can read."""


class RunError(SfappError):
    """A training script cannot be started as requested; the message says why."""


class ServeError(SfappError):
    """The app cannot be served: a path is missing, the address is in use, or a token is needed."""


class RemoteError(SfappError):
    """A remote app does not answer, rejects the token, or has another version."""


class AlertError(SfappError):
    """A target of alerts, the file with their state, or a time is invalid."""


class DeliveryError(AlertError):
    """A target did not accept a message.

    Attributes:
        is_final: whether trying again is of no use.
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        self.is_final = is_final
        super().__init__(reason)


class MissingExtraError(SfappError):
    """An optional dependency is not installed; the message names the extra to install."""

    @classmethod
    def of(cls, error: ImportError, user: str, extra: str | None = None) -> MissingExtraError | None:
        """Return the error for a failed import; None if no extra of sfapp installs the module.

        Args:
            error: the import error; a library may raise its own because of the missing module.
            user: the command or name that needs it.
            extra: the extra to name; the smallest one that installs the module if None.
        """
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ModuleNotFoundError):
            cause = cause.__cause__ or cause.__context__
        package = ((cause and cause.name) or "").partition(".")[0]
        if package == "torch":
            return cls(
                f"{user} needs PyTorch, which sfapp never installs: install the build for your platform "
                "(https://pytorch.org/get-started)"
            )
        if package not in EXTRA_OF_MODULE:
            return None
        extra = extra or EXTRA_OF_MODULE[package]
        return cls(f"{user} needs {package}: pip install 'sfapp[{extra}]'")


EXTRA_OF_MODULE = {
    **dict.fromkeys(
        (
            *("anyio", "cachetools", "duckdb", "engineio", "fastapi", "filelock", "jinja2", "nicegui"),
            *("orjson", "prometheus_client", "rich", "socketio", "starlette", "typst", "uvicorn"),
            *("watchfiles", "wsproto"),
        ),
        "app",
    ),
    **dict.fromkeys(("psutil", "pynvml", "zmq"), "stream"),
    **dict.fromkeys(("yaml",), "traces"),
    **dict.fromkeys(("apprise",), "alerts"),
    **dict.fromkeys(("obstore",), "s3"),
    **dict.fromkeys(("opentelemetry", "requests", "urllib3"), "otlp"),
    **dict.fromkeys(("IPython", "anywidget", "ipywidgets", "plotly", "polars"), "jupyter"),
    **dict.fromkeys(("mcp",), "mcp"),
    **dict.fromkeys(("ray",), "ray"),
    **dict.fromkeys(("dask", "distributed"), "dask"),
    **dict.fromkeys(("mlflow", "wandb"), "trackers"),
    **dict.fromkeys(("lightning",), "lightning"),
    **dict.fromkeys(("accelerate", "transformers"), "hf"),
}
"""The extra in pyproject.toml that installs a third-party module; torch is left to the user."""


def describe_error(error: BaseException) -> str:
    """Return an error's type and message as one line of at most 500 characters."""
    return printable(f"{type(error).__name__}: {' '.join(str(error).split())}", 500)
