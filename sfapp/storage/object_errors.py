"""Turn errors of obstore into one sentence without credentials, and tell which of them may pass."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sfapp.storage.storage_address import HIDDEN, redacted
from sfapp.terminal import printable, quoted

_STATUS = re.compile(r"status(?: code)?:? ?(?P<status>\d{3}(?: [A-Z][A-Za-z' -]*)?)")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")
_METADATA_SERVICE = re.compile(r"169\.254\.\d+\.\d+|metadata\.google\.internal|fd00:ec2::254")
_ATTEMPT = re.compile(
    r"Error performing .*? in [0-9.]+[mµn]?s(?:, after .*?retry_timeout: [0-9.]+[mµn]?s)?\s*-\s*"
)

_KEY = re.compile(r'with invalid path: .{0,20}Path "(?P<key>.{1,1024}?)":? (?P<why>[^\n]{1,100})', re.DOTALL)
"""How object_store names a key that it cannot hold; it then returns nothing of the listing."""

_SYSTEM_ERROR = re.compile(r'message: "([^"]{1,200})"|\b(TimedOut)\b')

_PASSING_STATUSES = frozenset((408, 412, 425, 429))  # 412: the object was replaced meanwhile
_PASSING_ERRORS = frozenset(("GenericError", "BaseError", "OSError", "PreconditionError"))
_PASSING_CODES = frozenset(("RequestTimeout", "SlowDown", "InternalError", "RequestTimeTooSkewed"))
_CREDENTIAL_CODES = frozenset(
    (
        *("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId"),
        *("SignatureDoesNotMatch", "AuthenticationFailed", "RequestExpired"),
    )
)

_LONGEST = 300

_MOST_TEXT = 10_000
"""Characters of an error that are examined: a server's answer may be in it, of any length."""


@dataclass(frozen=True, slots=True)
class RequestFault:
    """Why a request failed.

    Attributes:
        reason: one line without credentials.
        may_pass: whether the same request may succeed later.
        is_refusal: whether access to this object is refused, while other objects may be readable.
    """

    reason: str
    may_pass: bool
    is_refusal: bool = False


def fault_of(error: Exception, secrets: Iterable[str] = ()) -> RequestFault:
    """Return why a request failed, from the exception that obstore raised."""
    text = str(error)[:_MOST_TEXT]
    if _METADATA_SERVICE.search(text):
        return RequestFault(
            "no credentials found: set environment variables such as AWS_ACCESS_KEY_ID, or --storage-option "
            "(skip_signature=true for public data)",
            may_pass=False,
        )
    if (key := _KEY.search(text)) is not None:
        reason = f"no object can be listed before {quoted(key['key'])} is renamed or deleted: {key['why']}"
        return RequestFault(without_secrets(reason, secrets), may_pass=False)
    status = _STATUS.search(text)
    code, message = _CODE.search(text), _MESSAGE.search(text)
    number = int(status["status"][:3]) if status else 0
    code_name = code[1] if code else ""
    if code_name or number:
        parts = (status["status"].strip() if status else "", code_name, message[1] if message else "")
        reason = ": ".join(part for part in parts if part)
        may_pass = number >= 500 or number in _PASSING_STATUSES or code_name in _PASSING_CODES
        is_refusal = number in (401, 403) and code_name not in _CREDENTIAL_CODES
    else:
        reason = _innermost(text)
        may_pass = type(error).__name__ in _PASSING_ERRORS
        is_refusal = False
    return RequestFault(without_secrets(reason, secrets), may_pass, is_refusal)


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these values and without credentials in addresses, in one line."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return printable(" ".join(redacted(text).split()), _LONGEST)


def _innermost(text: str) -> str:
    """Return the first line of a message, with the system's error from its debug text if there is one."""
    first = _ATTEMPT.sub("", text.strip().partition("\n")[0])
    system = [message or "timed out" for message, _ in _SYSTEM_ERROR.findall(text)]
    return f"{first}: {system[-1]}" if system and system[-1] not in first else first
