"""``sfapp mcp`` as clients use it: a process of its own, over stdio, and over HTTP behind the token."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from tests.commands import run_sfapp

PACKETS = Path(__file__).parents[2] / "sample_data" / "packets" / "gpt-small-rank-lost"
COMMAND = (sys.executable, "-c", "from sfapp.cli import main; main()", "mcp", str(PACKETS))
TOKEN = "0123456789abcdef"
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
ENVIRONMENT = {**os.environ, "SFAPP_TOKEN": TOKEN, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    """A server over HTTP with a token."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*COMMAND, "--http", "127.0.0.1:0"], env=ENVIRONMENT, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def test_over_stdio_and_over_http_a_client_gets_the_same_answer(server: subprocess.Popen[str]) -> None:
    # Given a server that the client starts, and one over HTTP
    parameters = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:]], env=ENVIRONMENT)
    async with Client(stdio_client(parameters)) as client:
        over_stdio = await client.call_tool("list_problems", {})
        assert client.server_info.name == "sfapp"
    assert server.stdout is not None
    found = re.search(r"http://127.0.0.1:\d+/mcp", server.stdout.readline())
    assert found is not None
    # When that is asked, then only a client with the token gets an answer, the same
    check_access(found[0])
    call = {"name": "list_problems", "arguments": {}}
    asked = {**LIST, "method": "tools/call", "params": call}
    headers = {**JSON, "Authorization": f"Bearer {TOKEN}"}
    over_http = httpx.post(found[0], headers=headers, json=asked).json()["result"]
    assert over_http["structuredContent"] == over_stdio.structured_content
    assert over_http["structuredContent"]["untrusted_data"]["problems"][0]["kind"] == "missing"
    # And a client that leaves in the middle of a call leaves nothing in the log
    leave_in_a_body(found[0])
    assert httpx.post(found[0], headers=headers, json=LIST).status_code == 200
    # And it ends in order at a signal
    server.send_signal(signal.SIGTERM)
    _, error = server.communicate(timeout=20)
    assert (server.returncode, error) == (0, "")


def leave_in_a_body(url: str) -> None:
    """Announce a longer body than is sent, and leave."""
    place = urlsplit(url)
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
    fields = "".join(f"{name}: {value}\r\n" for name, value in JSON.items())
    with socket.create_connection((place.hostname or "", place.port or 0)) as client:
        client.sendall(f"{head}{fields}Content-Length: 9\r\n\r\n{{".encode())
        time.sleep(0.5)  # until the server waits for the rest


def check_access(url: str) -> None:
    """Check who is answered: as the app does, because the checks are the app's."""
    known = {"Authorization": f"Bearer {TOKEN}"}

    def status(method: str = "POST", content: bytes | Iterator[bytes] | None = None, **headers: str) -> int:
        body = {"json": LIST} if content is None else {"content": content}
        return httpx.request(method, url, headers={**JSON, **headers}, **body).status_code

    assert status() == 401
    assert status(Authorization=f"Bearer {TOKEN}x") == 401
    assert status(**known) == 200
    assert status(**known, Host="evil.example") == 400
    assert status(**known, Origin="http://evil.example") == 403
    assert status(**known, content=b" " * (1 << 20 | 1)) == 413
    assert status(**known, content=iter([b" " * (1 << 20), b" "])) == 413  # without its length
    assert status(**known, content=b"{") == 400
    assert status("GET", **known) == 405


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("0.0.0.0:0", "--http 0.0.0.0:0 can be reached from other machines: protect it with --token-file"),
        ("[::]:0", "can be reached from other machines"),
        ("127.0.0.1", "--http must be HOST:PORT"),
        ("me@127.0.0.1:1", "--http must be HOST:PORT"),
        ("127.0.0.1:99999", "--http must be HOST:PORT"),
        ("192.0.2.7:80\x1b", "--http must be HOST:PORT"),
    ],
)
def test_an_address_must_be_one_and_demands_a_token_beyond_this_machine(address: str, message: str) -> None:
    finished = run_sfapp("mcp", PACKETS, "--http", address)
    assert finished.returncode == 2
    assert message in finished.stderr
    assert finished.stderr.strip().isprintable()


def test_a_token_must_be_long_and_needs_http(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("fifteen letters\n")
    finished = run_sfapp("mcp", PACKETS, "--http", "127.0.0.1:0", "--token-file", tmp_path / "token")
    assert "fewer than 16 characters" in finished.stderr
    assert "needs --http" in run_sfapp("mcp", PACKETS, "--token-file", tmp_path / "token").stderr
