"""Deliver one message through Apprise, in a process that ``AppriseTarget`` starts and limits.

Apprise limits how long a service may keep silent, not how long or how large its answer is.
"""

from __future__ import annotations

import sys

import apprise
import msgspec

from sfapp.process_limits import limit_process

MEMORY_BYTES = 1 << 30
"""Limit of memory, so that an answer without end ends the process."""


class ServiceMessage(msgspec.Struct, kw_only=True):
    """Request on standard input: a message, and the Apprise URL that it is sent to."""

    url: str
    title: str
    body: str
    needs_attention: bool


def main() -> int:
    """Deliver the message on standard input; return 0 if the service has accepted it."""
    limit_process(MEMORY_BYTES)
    message = msgspec.json.decode(sys.stdin.buffer.read(), type=ServiceMessage)
    # A service that redirects could have it send the message to an address inside the network.
    service = apprise.Apprise(asset=apprise.AppriseAsset(http_redirects=False))
    kind = apprise.NotifyType.WARNING if message.needs_attention else apprise.NotifyType.SUCCESS
    accepted = service.add(message.url) and service.notify(
        title=message.title,
        body=message.body,
        body_format=apprise.NotifyFormat.TEXT,
        notify_type=kind,
    )
    return 0 if accepted else 1


if __name__ == "__main__":
    sys.exit(main())
