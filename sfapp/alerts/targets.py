"""Where messages go: a webhook with signed JSON, a command, or a service that Apprise knows.

Each delivery has a time limit, and none reads more than a little of an answer.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import importlib
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from sfapp import __version__
from sfapp.alerts.message import AlertMessage
from sfapp.alerts.program import run_program
from sfapp.errors import AlertError, DeliveryError
from sfapp.service.http_client import HTTP_FAULTS, HttpServer
from sfapp.terminal import first_line

WEBHOOK, COMMAND = "webhook+", "command:"
"""Prefixes of a target: of a webhook's address and of a command."""

SECRET_VARIABLE = "SFAPP_WEBHOOK_SECRET"
"""Environment variable with the secret of webhooks."""

SECONDS = 10.0
"""Time limit of a delivery to a webhook."""

COMMAND_SECONDS = 30.0
"""Time limit of a command."""

SERVICE_SECONDS = 60.0
"""Time limit of a delivery through Apprise: mail takes longest."""

LEAST_SECRET = 16

_PATH = re.compile("[!-~]+")

_APPRISE = (sys.executable, "-P", "-m", "sfapp.alerts.apprise_process")
_MAX_ANSWER = 4096
_STANDARD_SECRET = "whsec_"
_WORTH_A_RETRY = frozenset({408, 425, 429})


class AlertTarget(Protocol):
    """Receiver of messages."""

    @property
    def text(self) -> str:
        """The target as the user wrote it, which may hold secrets."""

    @property
    def name(self) -> str:
        """The target in messages, without secrets."""

    def send(self, message: AlertMessage) -> None:
        """Deliver one message, within a bounded time.

        Raises:
            DeliveryError: it was not accepted.
        """


def target_of(text: str, secret: str | None) -> AlertTarget:
    """Return the target that a text names.

    Args:
        secret: of webhooks.

    Raises:
        AlertError: it names none, or a webhook has no secret.
        ModuleNotFoundError: it needs Apprise, which is not installed.
    """
    if text.startswith(COMMAND):
        return CommandTarget.of(text)
    if text.startswith(WEBHOOK):
        return WebhookTarget.of(text, secret)
    if text.startswith(("http://", "https://")):
        raise AlertError(f"for a webhook, write {WEBHOOK}{text.partition(':')[0]}://… (docs/alerts.md)")
    return AppriseTarget.of(text)


def signature(secret: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a delivery as Standard Webhooks defines it: ``v1,`` and the base64 of the
    HMAC-SHA256 of ``id.timestamp.body``."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(secret, signed, "sha256")).decode()


def secret_key(secret: str) -> bytes:
    """Return the key of a secret: what follows ``whsec_`` in base64, else the text itself.

    Raises:
        AlertError: it is too short, or no base64.
    """
    text = secret.strip()
    try:
        key = (
            base64.b64decode(text.removeprefix(_STANDARD_SECRET), validate=True)
            if text.startswith(_STANDARD_SECRET)
            else text.encode()
        )
    except (binascii.Error, ValueError):
        raise AlertError("the secret begins with whsec_, but what follows is no base64") from None
    if len(key) < LEAST_SECRET:
        raise AlertError(
            f"the secret has fewer than {LEAST_SECRET} bytes, so that it could be guessed; make one with "
            "`openssl rand -hex 16`"
        )
    return key


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """Address that receives messages as signed JSON (docs/alerts.md)."""

    text: str
    name: str
    server: HttpServer
    path: str
    key: bytes
    now: Callable[[], float] = time.time

    @classmethod
    def of(cls, text: str, secret: str | None) -> WebhookTarget:
        """Return the target ``webhook+https://HOST/PATH``.

        Raises:
            AlertError: the address is none, or there is no secret.
        """
        if secret is None:
            raise AlertError(
                "a webhook needs a secret with which messages are signed: --secret-file FILE, or "
                f"{SECRET_VARIABLE}"
            )
        address = text.removeprefix(WEBHOOK)
        try:
            server, parts = HttpServer.of(address), urlsplit(address)
        except ValueError as error:
            raise AlertError(f"{WEBHOOK}… is no address of a webhook: {error}") from error
        path = parts.path or "/"
        path = f"{path}?{parts.query}" if parts.query else path
        if not _PATH.fullmatch(path):  # HTTP's errors would repeat it, and it may hold a secret.
            raise AlertError(
                f"the path of the webhook {server.place} has a space or another character that no address "
                "holds: write it as % and two hexadecimal digits"
            )
        return cls(text, f"webhook {server.place}", server, path, secret_key(secret))

    def send(self, message: AlertMessage) -> None:
        """Deliver one message (``AlertTarget.send``)."""
        timestamp = int(self.now())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"sfapp/{__version__}",
            "webhook-id": message.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(self.key, message.id, timestamp, message.body),
        }
        try:
            status, _ = self.server.exchange(
                "POST", self.path, headers, message.body, seconds=SECONDS, most=_MAX_ANSWER
            )
        except HTTP_FAULTS as error:
            raise DeliveryError(f"{self.name} does not answer ({first_line(str(error))})") from error
        if not 200 <= status < 300:
            is_final = status < 500 and status not in _WORTH_A_RETRY
            raise DeliveryError(f"{self.name} answers {status}", is_final=is_final)


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """Program that receives each message as JSON on its standard input. No shell reads any of it."""

    text: str
    name: str
    arguments: Sequence[str]
    seconds: float = COMMAND_SECONDS

    @classmethod
    def of(cls, text: str) -> CommandTarget:
        """Return the target ``command:PROGRAM ARGUMENTS``.

        Raises:
            AlertError: there is no such program.
        """
        try:
            arguments = shlex.split(text.removeprefix(COMMAND))
        except ValueError as error:
            raise AlertError(f"{COMMAND}… is no command: {error}") from error
        if not arguments or shutil.which(arguments[0]) is None:
            raise AlertError(f"{COMMAND}… names no program that can be run: write {COMMAND}/path/to/program")
        return cls(text, f"command {os.path.basename(arguments[0])}", arguments)

    def send(self, message: AlertMessage) -> None:
        """Deliver one message (``AlertTarget.send``)."""
        code, printed = run_program(self.name, self.arguments, message.body, self.seconds)
        if code:
            raise DeliveryError(f"{self.name} ended with {code}: {printed or 'it printed no error'}")


@dataclass(frozen=True, slots=True)
class AppriseTarget:
    """Service that Apprise delivers to: mail, chats, pagers and others.

    A process of its own delivers each message, because only a process can be ended whatever the service
    answers.
    """

    text: str
    name: str
    seconds: float = SERVICE_SECONDS

    @classmethod
    def of(cls, text: str) -> AppriseTarget:
        """Return the target of an Apprise URL.

        Raises:
            AlertError: Apprise knows no such service.
            ModuleNotFoundError: Apprise is not installed.
        """
        apprise = importlib.import_module("apprise")
        scheme = text.partition("://")[0]
        if "://" not in text or not apprise.Apprise().add(text):
            raise AlertError(
                f"{first_line(scheme, 40)!r} is no address of a service: write an Apprise URL "
                f"(https://github.com/caronc/apprise), {WEBHOOK}https://… or {COMMAND}PROGRAM"
            )
        return cls(text, f"service {first_line(scheme, 40)}")

    def send(self, message: AlertMessage) -> None:
        """Deliver one message (``AlertTarget.send``)."""
        request = {
            "url": self.text,
            "title": message.title,
            "body": message.text.partition("\n\n")[2] or message.text,
            "needs_attention": message.needs_attention,
        }
        # What Apprise prints is not shown: it may hold secrets of the address.
        code, _ = run_program(self.name, _APPRISE, msgspec.json.encode(request), self.seconds)
        if code:
            raise DeliveryError(f"{self.name} did not accept the message")
