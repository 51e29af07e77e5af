"""Drop messages from pages that no page sends, each with one line in the log.

A message of Socket.IO may announce ten billion attachments of up to 1 MB each, and those that came are kept
until the last one has. NiceGUI reads the others without looking at their types: each wrong one would leave a
traceback. The same holds for a form that is sent to a file chooser without a file, or with one that the disk
does not take.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

import msgspec
from fastapi import HTTPException
from nicegui import Client, core, json
from nicegui.elements import upload
from nicegui.elements.upload_files import FileUpload, create_file_upload
from socketio.exceptions import ConnectionRefusedError
from socketio.packet import BINARY_ACK, BINARY_EVENT, CONNECT_ERROR, EVENT, Packet
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from sfapp.app.field_values import is_possible
from sfapp.app.repeated_errors import RepeatedErrors
from sfapp.errors import describe_error
from sfapp.terminal import first_line

LONGEST_REASON = 200
"""Maximum number of characters of the reason in the log."""

LONGEST_ID = 100
"""Maximum number of characters of the id of a tab, which is kept for a month; pages make some of 36."""

_logger = logging.getLogger(__name__)


class _SentByPage(msgspec.Struct):
    client_id: str


class _SentEvent(_SentByPage):
    id: int
    listener_id: str
    args: list[str | None] = []


_Id = Annotated[str, msgspec.Meta(max_length=LONGEST_ID)]


class _SentHandshake(_SentByPage):
    tab_id: _Id
    document_id: _Id
    old_tab_id: _Id | None = None
    next_message_id: int | None = None


class _SentAck(_SentByPage):
    next_message_id: int


class _SentLog(_SentByPage):
    level: Literal["debug", "info", "warning", "error"]
    message: Any


class _SentAnswer(_SentByPage):
    request_id: str


_TYPES: dict[str, type[_SentByPage]] = {
    "event": _SentEvent,
    "handshake": _SentHandshake,
    "ack": _SentAck,
    "log": _SentLog,
    "javascript_response": _SentAnswer,
}
"""The messages that NiceGUI's pages send, by name."""


def note_dropped(reason: str) -> None:
    """Log why a message was dropped."""
    _logger.warning("a message that no page sends was dropped: %s", first_line(reason, LONGEST_REASON))


class PageMessage(Packet):  # type: ignore[misc]  # Socket.IO has no types.
    """A message to or from a page; one that no page sends becomes one that has no handler."""

    def __init__(self, *arguments: Any, encoded_packet: str | bytes | None = None, **fields: Any) -> None:
        super().__init__(*arguments, encoded_packet=encoded_packet, **fields)
        if encoded_packet is not None and not encoded_packet:  # which Socket.IO takes for none to decode
            self._drop("it is empty")

    def decode(self, encoded_packet: str | bytes) -> int:
        """Decode a message that was received, and return how many attachments follow: none."""
        try:
            super().decode(encoded_packet)
            self._check()
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            self._drop(str(error))
        return 0

    def _drop(self, reason: str) -> None:
        note_dropped(reason)
        self.packet_type, self.namespace, self.id, self.data = EVENT, None, None, ["dropped"]

    def _check(self) -> None:
        """Check the type of the message.

        Raises:
            ValueError: it announces attachments, refuses a connection, is none of ``_TYPES``, or an argument
                is no JSON.
            msgspec.ValidationError: a field has another type.
        """
        if self.packet_type in (BINARY_EVENT, BINARY_ACK):
            raise ValueError("it announces attachments")
        if self.packet_type == CONNECT_ERROR:
            raise ValueError("it refuses a connection")
        if self.packet_type == EVENT:
            match self.data:
                case [str(name), content] if name in _TYPES:
                    _check_arguments(msgspec.convert(content, _TYPES[name]))
                case _:
                    raise ValueError("it has no name that pages send, or not one value")


def _check_arguments(message: _SentByPage) -> None:
    """Check that an event's arguments can be decoded as NiceGUI will do it, each from a text of its own.

    Raises:
        ValueError: one is no JSON, or holds a lone surrogate.
    """
    for argument in message.args if isinstance(message, _SentEvent) else ():
        if argument is not None:
            json.loads(argument)


async def _uploaded_file(part: UploadFile | str) -> FileUpload:
    """Return the file in a part of a form, or refuse the form with 400."""
    if isinstance(part, str):
        raise HTTPException(400, "a part of the form is not a file")
    return await create_file_upload(part)


def _refuse_file(request: Request, error: Exception) -> Response:
    """Answer a page's file that cannot be kept until it is read."""
    if request.method != "POST":  # Nothing but files is posted.
        raise error
    _logger.warning("a file that a page sent could not be kept: %s", describe_error(error))
    return Response(status_code=507)


def _discard(_request: Request, _left: Exception) -> Response:
    """Answer a request whose client left in the middle of a file."""
    return Response(status_code=400)


async def _connect(socket_id: str, environ: dict[str, Any], credentials: object = None) -> None:
    """Pass a new websocket on to NiceGUI, unless the handshake in its query is one that no page sends."""
    # As NiceGUI reads it, which takes the first of equal names.
    query = {name: values[0] for name, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
    if query.get("implicit_handshake") == "true":
        try:
            msgspec.convert(query, _SentHandshake, strict=False)  # a query has texts only
            int(query.get("next_message_id", "0"))  # msgspec also takes 1e5 for an integer
        except ValueError as error:  # of msgspec, too
            note_dropped(str(error))
            raise ConnectionRefusedError("no page sends this handshake") from error
    await _connect_page(socket_id, environ, credentials)


def _take_event(socket_id: str, message: dict[str, Any]) -> None:
    """Pass an event on to NiceGUI, which takes its listener and its value without a check."""
    client = Client.instances.get(message["client_id"])
    element = None if client is None else client.elements.get(message["id"])
    if element is not None and message["listener_id"] not in element._event_listeners:
        note_dropped("its element has no such listener")
        return
    if element is not None and not is_possible(element, message["listener_id"], message.get("args", ())):
        note_dropped("its field cannot have this value")
        return
    _take_page_event(socket_id, message)


_repeated_errors = RepeatedErrors()
_connect_page = core.sio.handlers["/"]["connect"]
_take_page_event = core.sio.handlers["/"]["event"]


def _write_to_the_log(logger: logging.Logger) -> None:
    """Have messages written as all others: Socket.IO's own way escapes nothing and has no bound."""
    for handler in [handler for handler in logger.handlers if type(handler) is logging.StreamHandler]:
        logger.removeHandler(handler)


def check_messages() -> None:
    """Have NiceGUI's server decode messages as ``PageMessage``, check handshakes and the forms of file
    choosers, and log an error that repeats once a minute."""
    core.sio.packet_class = PageMessage
    core.sio.on("connect", _connect)
    core.sio.on("event", _take_event)
    logging.getLogger("nicegui").addFilter(_repeated_errors)
    _write_to_the_log(core.sio.logger)
    _write_to_the_log(core.sio.eio.logger)
    core.app.add_exception_handler(ClientDisconnect, _discard)
    core.app.add_exception_handler(OSError, _refuse_file)
    setattr(upload, create_file_upload.__name__, _uploaded_file)
