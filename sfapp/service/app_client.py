"""Request the JSON of a running app (``sfapp serve``) for the command line."""

from __future__ import annotations

import re
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec

from sfapp.errors import RemoteError, WindowNotFoundError
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.service.http_client import HTTP_FAULTS, HttpServer
from sfapp.terminal import first_line, quoted

MAX_BYTES = 16 << 20
"""Size limit of an answer: a job of 16,000 ranks, at 1 kB per rank. Its objects may take 30 times as much."""

ANSWER_SECONDS = 20.0
"""Time limit of a whole answer, however slowly the server sends it."""

Answer = TypeVar("Answer")


_TOKEN = re.compile("[ -~]+")


class _VersionOnly(msgspec.Struct):
    version: int | None = None


class AppClient:
    """Client of one app; requests go to the address itself.

    Attributes:
        place: the app's address, for messages.
    """

    def __init__(self, address: str, token: str | None, answer_seconds: float = ANSWER_SECONDS) -> None:
        """Parse the address; no request is sent yet.

        Args:
            address: as ``sfapp serve`` prints it, with or without the token.
            token: the app's token, if it has one.
            answer_seconds: time limit of each answer.

        Raises:
            RemoteError: it is no HTTP address, or the token cannot be one.
        """
        try:
            self._server = HttpServer.of(address)
            parts = urlsplit(address)
        except ValueError:  # Its text may repeat a password.
            raise RemoteError(
                f"{quoted(_without_secrets(address))} is no address of an app; one looks like "
                "http://node0:8642"
            ) from None
        self._root = parts.path.rstrip("/")
        self.place = self._server.place + self._root
        self._token = token or dict(parse_qsl(parts.query)).get("token")
        if self._token is not None and not _TOKEN.fullmatch(self._token):  # HTTP's errors would repeat it.
            raise RemoteError(
                f"the token for {self.place} has characters that no header can hold, such as a line break: "
                "set --token or SFAPP_TOKEN to the one of `sfapp serve`"
            )
        self._answer_seconds = answer_seconds

    def get(self, path: str, kind: type[Answer], version: int | None = None) -> Answer:
        """Return the object at a path of the app.

        Args:
            version: the version that the object must have; None if it has none.

        Raises:
            RemoteError: the server does not answer, rejects the token, or is no sfapp of this version.
            WindowNotFoundError: the object does not exist there.
        """
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            status, body = self._server.exchange(
                "GET", self._root + path, headers, seconds=self._answer_seconds, most=MAX_BYTES
            )
        except HTTP_FAULTS as error:
            raise RemoteError(
                f"{self.place} does not answer ({first_line(str(error), 200)}): "
                "start `sfapp serve` or `sfapp run --ui` there, or forward its port from another machine "
                "with `ssh -L 8642:127.0.0.1:8642 HOST`"
            ) from error
        if status != 200:
            raise self._rejected(status, body[:4096])
        if len(body) > MAX_BYTES:
            raise RemoteError(
                f"{self.place} sends more than {MAX_BYTES >> 20} MiB: watch the job on its page"
            )
        try:
            if version is not None:
                self._check_version(msgspec.json.decode(body, type=_VersionOnly).version, version)
            return msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError as error:
            raise RemoteError(f"{self.place} does not answer as sfapp does: {error}") from error
        except UNREADABLE_JSON as error:
            raise RemoteError(f"{self.place} is no sfapp: its answer is not JSON") from error

    def _rejected(self, status: int, body: bytes) -> RemoteError | WindowNotFoundError:
        if status == 401:
            fault = "rejects this token" if self._token else "requires a token"
            return RemoteError(
                f"{self.place} {fault}: set --token or SFAPP_TOKEN to the one of `sfapp serve`"
            )
        try:
            message = msgspec.json.decode(body, type=dict[str, str])["error"]
        except (*UNREADABLE_JSON, KeyError):
            return RemoteError(
                f"{self.place} answers {status}: {first_line(body.decode(errors='replace').strip(), 200)}"
            )
        return (WindowNotFoundError if status == 404 else RemoteError)(first_line(message))

    def _check_version(self, version: int | None, expected: int) -> None:
        if version != expected:
            raise RemoteError(
                f"{self.place} has version {version or 'unknown'} of the live data and this sfapp version "
                f"{expected}: use the same sfapp on both sides"
            )


def _without_secrets(address: str) -> str:
    """Return an address without its password and token."""
    scheme, separator, rest = address.partition("?")[0].partition("://")
    return scheme + separator + rest.rpartition("@")[2]
