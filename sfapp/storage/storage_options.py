"""Options of an object store: obstore's own, and those of the repeated requests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sfapp.errors import StorageError
from sfapp.terminal import quoted

_RETRIES, _RETRY_SECONDS = "max_retries", "retry_timeout"

_CLIENT_NAMES = frozenset(
    (
        *("allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type"),
        *("disable_system_certificates", "http1_only", "http2_only", "http2_keep_alive_interval"),
        *("http2_keep_alive_timeout", "http2_keep_alive_while_idle", "http2_max_frame_size"),
        *("pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes"),
        *("proxy_url", "randomize_addresses", "read_timeout", "root_certificate", "timeout", "user_agent"),
    )
)
"""Options of obstore's HTTP client, which it takes apart from those of a provider."""

_PROVIDERS = ("aws_", "azure_", "google_")
"""Beginnings of names of environment variables, which obstore does not accept in options of the client."""

_CLIENT_DEFAULTS = {"connect_timeout": "5s", "read_timeout": "30s", "timeout": "10m"}
"""A request may take long, because a packet may be large, but its bytes must keep arriving."""

_SECRET_NAME = re.compile(r"key|secret|token|password|credential|sas|signature|username", re.IGNORECASE)
_ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_")

_LEAST_SECRET = 6
"""Characters from which on such a value is hidden in messages; shorter ones are words like true."""


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Options of one storage, hashable.

    Attributes:
        config: options that obstore takes, by name in lower case. Their values are never shown.
        max_retries, retry_timeout: how often a failed request is sent again, and for how long in seconds.
    """

    config: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    max_retries: int = 6
    retry_timeout: float = 60.0

    @classmethod
    def of(cls, given: Mapping[str, object] | None) -> StorageOptions:
        """Return options by name, as the command line or a notebook gives them.

        Raises:
            StorageError: a number is invalid.
        """
        values = {name.lower(): _text(value) for name, value in (given or {}).items()}
        retries = _number(_RETRIES, values.pop(_RETRIES, "6"))
        seconds = _number(_RETRY_SECONDS, values.pop(_RETRY_SECONDS, "60"))
        return cls(tuple(sorted(values.items())), int(retries), seconds)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> dict[str, str]:
        """Return options by name from texts of the form ``KEY=VALUE``.

        Raises:
            StorageError: a text has another form. The message does not repeat it, because it may be a secret.
        """
        found = {}
        for number, text in enumerate(texts, start=1):
            name, equals, value = text.partition("=")
            if not equals or not name:
                raise StorageError(f"storage option {number} is not KEY=VALUE, such as region=eu-central-1")
            found[name.strip()] = value
        return found

    def provider_options(self) -> dict[str, str]:
        """Return the options of the provider by name."""
        return {name: value for name, value in self.config if _client_name(name) not in _CLIENT_NAMES}

    def client_options(self, scheme: str) -> dict[str, str]:
        """Return the HTTP client's options by name: those given, else of the environment, else defaults."""
        given = {_client_name(name): value for name, value in self.config}
        chosen = _CLIENT_DEFAULTS | _client_environment(scheme) | given
        return {name: value for name, value in chosen.items() if name in _CLIENT_NAMES}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return values of options and environment variables that no message may show, longest first."""
        environment = ((name, value) for name, value in os.environ.items() if name.startswith(_ENVIRONMENT))
        found = {
            value
            for name, value in (*self.config, *environment)
            if _SECRET_NAME.search(name) and len(value) >= _LEAST_SECRET
        }
        return tuple(sorted(found, key=len, reverse=True))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _client_name(name: str) -> str:
    for beginning in _PROVIDERS:
        name = name.removeprefix(beginning)
    return name


def _client_environment(scheme: str) -> dict[str, str]:
    """Return the HTTP client's options of the environment, such as ``AWS_ALLOW_HTTP``.

    obstore reads them only where no option of the client is given.
    """
    beginning = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}.get(scheme)
    if beginning is None:
        return {}
    return {
        name.removeprefix(beginning).lower(): value
        for name, value in os.environ.items()
        if name.startswith(beginning)
    }


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise StorageError(f"storage option {name}={quoted(text)} is not a number of at least 0")
    return value
