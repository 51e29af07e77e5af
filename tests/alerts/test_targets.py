"""Where messages go: signed webhooks, commands and services, each bounded in time."""

from __future__ import annotations

import base64
import errno
import re
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sfapp.alerts import delivery, targets
from sfapp.alerts.changes import CHANGES
from sfapp.alerts.delivery import ATTEMPTS, send
from sfapp.alerts.message import trial_message
from sfapp.alerts.targets import AppriseTarget, CommandTarget, secret_key, signature, target_of
from sfapp.errors import AlertError, DeliveryError
from tests.alerts.webhook_server import webhook_server
from tests.cli.test_top_hostile_server import OK, serving, slowly

pytestmark = pytest.mark.filterwarnings("ignore:.imghdr. is deprecated:DeprecationWarning")  # by Apprise

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PAGE = Path(__file__).parents[2] / "docs" / "alerts.md"
MESSAGE = trial_message(datetime(2026, 3, 1, tzinfo=UTC))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RETRY_SECONDS", 0.0)


def test_a_signature_is_that_of_the_standard() -> None:
    # The example of https://www.standardwebhooks.com and of its libraries
    body = b'{"test": 2432232314}'
    found = signature(secret_key(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_webhook_receives_signed_json_and_each_attempt_has_the_same_id() -> None:
    with webhook_server([503, 429, 204]) as server:
        target = target_of(f"webhook+{server.address}/hook?key=1", SECRET)
        send(target, MESSAGE, threading.Event())
    assert len(server.delivered) == ATTEMPTS
    for each in server.delivered:
        stamp = int(each.headers["webhook-timestamp"])
        assert abs(time.time() - stamp) < 60
        signed = signature(secret_key(SECRET), each.headers["webhook-id"], stamp, each.body)
        assert each.headers["webhook-signature"] == signed
        assert (each.path, each.headers["content-type"]) == ("/hook?key=1", "application/json")
    assert {each.headers["webhook-id"] for each in server.delivered} == {MESSAGE.id}
    assert server.delivered[0].content["title"] == "sfapp: this is a test"


def test_a_receiver_verifies_messages_as_the_page_shows() -> None:
    (snippet,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(snippet, names)
    with webhook_server() as server:
        target_of(f"webhook+{server.address}", SECRET).send(MESSAGE)
    (message,) = server.delivered
    assert names["is_ours"](message.headers, message.body, secret_key(SECRET))
    assert not names["is_ours"](message.headers, message.body + b" ", secret_key(SECRET))
    assert not names["is_ours"](message.headers, message.body, b"another secret")


def test_the_page_lists_every_kind_of_change_and_every_field() -> None:
    cells = re.findall(r"^\| (`[^|]*`) \|", PAGE.read_text(), re.MULTILINE)
    names = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert {*CHANGES, *msgspec.json.decode(MESSAGE.body)} <= names


@pytest.mark.parametrize(("status", "attempts"), [(500, ATTEMPTS), (404, 1), (302, 1)])
def test_a_refusal_is_tried_again_only_if_that_may_help(status: int, attempts: int) -> None:
    with webhook_server([status]) as server:
        target = target_of(
            f"webhook+http://user:geheim@{server.address.removeprefix('http://')}/geheim", SECRET
        )
        with pytest.raises(DeliveryError, match=f"answers {status}") as refused:
            send(target, MESSAGE, threading.Event())
    assert len(server.delivered) == attempts
    assert "geheim" not in str(refused.value)


def test_a_webhook_logs_in_as_the_user_of_its_address() -> None:
    with webhook_server() as server:
        place = server.address.removeprefix("http://")
        target_of(f"webhook+http://ops:p%40ss@{place}/hook", SECRET).send(MESSAGE)
        target_of(f"webhook+http://{place}/hook", SECRET).send(MESSAGE)
    known, unknown = server.delivered
    assert base64.b64decode(known.headers["authorization"].removeprefix("Basic ")) == b"ops:p@ss"
    assert "authorization" not in unknown.headers


@pytest.mark.parametrize("path", ["a path/geheim", "päth/geheim?key=geheim"])
def test_a_webhook_with_a_path_that_no_request_can_hold_is_refused_without_repeating_it(path: str) -> None:
    with pytest.raises(AlertError, match=r"the webhook https://example\.org has a space") as refused:
        target_of(f"webhook+https://user:geheim@example.org/{path}", SECRET)
    assert "geheim" not in str(refused.value)


def test_a_server_that_answers_slowly_takes_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "SECONDS", 0.3)
    began = time.monotonic()
    with serving(lambda: slowly(OK)) as (address, _), pytest.raises(DeliveryError, match=r"within 0\.3 s"):
        target_of(f"webhook+{address}", SECRET).send(MESSAGE)
    assert time.monotonic() - began < 3


def test_a_command_receives_the_message_and_no_shell_reads_it(tmp_path: Path) -> None:
    keep = tmp_path / "keep it"
    program = f"import sys; open({str(keep)!r}, 'wb').write(sys.stdin.buffer.read())"
    target_of(f'command:{sys.executable} -c "{program}" ; false', None).send(MESSAGE)
    assert msgspec.json.decode(keep.read_bytes())["id"] == MESSAGE.id


def test_a_command_that_fails_or_does_not_end_is_reported() -> None:
    failing = target_of(f"command:{sys.executable} -c \"import sys; sys.exit('\\x1bno\\nmore')\"", None)
    with pytest.raises(DeliveryError, match=r"ended with 1: \\x1bno$"):
        failing.send(MESSAGE)
    began = time.monotonic()
    endless = CommandTarget("", "command sleep", ("sh", "-c", "sleep 60 & sleep 60"), seconds=0.1)
    with pytest.raises(DeliveryError, match="did not end within"):
        endless.send(MESSAGE)
    assert time.monotonic() - began < 5


def test_errors_of_a_command_take_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a machine without room for a file, or a command that would fill it
    def full(*_: object, **__: object) -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    # When it prints far more than is shown, then it can end, and only the beginning is kept
    program = "import sys; print('no', file=sys.stderr); sys.stderr.write('x' * 10**7); sys.exit(1)"
    with pytest.raises(DeliveryError, match=r"ended with 1: no$"):
        target_of(f'command:{sys.executable} -c "{program}"', None).send(MESSAGE)
    # When a program that it has left behind keeps its standard error open, then that is not waited for
    began = time.monotonic()
    target_of("command:sh -c 'echo on >&2; sleep 20 & exit 0'", None).send(MESSAGE)
    assert time.monotonic() - began < 10


@pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # It ends by itself.
def test_a_command_of_another_user_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ``sudo`` runs cannot be killed."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.killpg", refuse)
    began = time.monotonic()
    with pytest.raises(DeliveryError, match="did not end within"):
        CommandTarget("", "command sleep", ("sleep", "15"), seconds=0.1).send(MESSAGE)
    assert time.monotonic() - began < 10


def test_a_service_is_notified_through_apprise() -> None:
    with webhook_server([500, 200]) as server:
        target = target_of(server.address.replace("http://", "json://") + "/?cto=2&rto=2", None)
        with pytest.raises(DeliveryError, match="service json did not accept"):
            target.send(MESSAGE)
        target.send(MESSAGE)
    assert server.delivered[1].content["title"] == "sfapp: this is a test"
    assert "will arrive here" in server.delivered[1].content["message"]


def test_a_service_cannot_redirect_a_message_to_another_address() -> None:
    """Otherwise it could have the message sent to an address inside the network."""
    with webhook_server([307, 200]) as server:
        target = target_of(server.address.replace("http://", "json://"), None)
        with pytest.raises(DeliveryError, match="service json did not accept"):
            target.send(MESSAGE)
    assert [message.path for message in server.delivered] == ["/"]


def test_a_service_that_answers_without_end_takes_no_longer_than_the_limit() -> None:
    """Apprise waits as long as a byte arrives every few seconds."""
    with serving(lambda: slowly(OK)) as (address, _):
        target = AppriseTarget(address.replace("http://", "json://"), "service json", seconds=2.0)
        with pytest.raises(DeliveryError, match="service json did not end within 2 s"):
            target.send(MESSAGE)


@pytest.mark.parametrize(
    ("text", "secret", "message"),
    [
        ("webhook+https://example.org", None, "needs a secret"),
        ("webhook+https://example.org", "short", "fewer than 16"),
        ("webhook+https://example.org", "whsec_???", "no base64"),
        ("webhook+ftp://example.org", SECRET, "no address of a webhook"),
        ("webhook+http://[", SECRET, "no address of a webhook"),
        ("https://example.org/geheim", SECRET, r"write webhook\+https://"),
        ("command:", None, "names no program"),
        ("command:/no/such/program", None, "names no program"),
        ("command:'", None, "is no command"),
        ("nothing://geheim", None, "no address of a service"),
        ("geheim", None, "no address of a service"),
    ],
)
def test_a_target_that_is_none_is_refused(text: str, secret: str | None, message: str) -> None:
    with pytest.raises(AlertError, match=message):
        target_of(text, secret)
