"""A server that receives a stop signal while it computes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = """
import os, pathlib, signal, socket, sys
import uvicorn
from fastapi import FastAPI
from sfapp.app.stopping import PunctualServer

app = FastAPI()

@app.get("/")
def compute():
    print("computing", flush=True)
    while True:
        sum(range(1000))

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=2)
closed = pathlib.Path(sys.argv[1])
server = PunctualServer(config, close=closed.touch, abandon=lambda: os._exit(0))
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # uvicorn raises it again once it has stopped
server.run(sockets=[listener])
"""


def test_a_computation_does_not_keep_the_server_from_stopping(tmp_path: Path) -> None:
    # Given a server with a computation that does not end
    closed = tmp_path / "closed"
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(closed)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        asking = subprocess.Popen(
            [sys.executable, "-c", f"import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/')"],
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout.readline() == "computing\n"
        # When it receives a stop signal
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        # Then it ends within five seconds, without an error, and its store is closed
        assert process.wait(20) == 0
        assert time.monotonic() - began < 5
        asking.wait(20)
    assert closed.exists()


WAITING = """
import asyncio, logging, os, socket
import uvicorn
from fastapi import FastAPI
from sfapp.app.stopping import PunctualServer

app = FastAPI()

@app.get("/")
async def wait():
    print("waiting", flush=True)
    await asyncio.sleep(60)

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
config = uvicorn.Config(app, log_config=None, log_level="warning", timeout_graceful_shutdown=1)
server = PunctualServer(config, close=lambda: None, abandon=lambda: os._exit(3))
server.run(sockets=[listener])
"""


def test_requests_that_a_stop_cancels_are_one_line_of_the_log() -> None:
    # Given a server with two requests that wait
    with subprocess.Popen(
        [sys.executable, "-c", WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert process.stdout.readline() == "waiting\n"
        # When it receives a stop signal
        process.send_signal(signal.SIGTERM)
        # Then the log counts them
        _, log = process.communicate(timeout=20)
        for client in clients:
            client.close()
    assert log == "Cancel 2 running task(s), timeout graceful shutdown exceeded\n"


SIGNALLED_EARLY = """
import os, signal, socket
from fastapi import FastAPI
from sfapp.app.listening import serve_until_signal
from sfapp.app.stopping import PunctualServer

run = PunctualServer.run

def run_later(server, sockets):
    signal.raise_signal(signal.SIGTERM)
    run(server, sockets)

PunctualServer.run = run_later
listener = socket.create_server(("127.0.0.1", 0))
serve_until_signal(FastAPI(), listener, close=lambda: None, abandon=lambda: os._exit(3))
"""


def test_a_stop_signal_before_the_server_handles_signals_is_not_lost() -> None:
    subprocess.run([sys.executable, "-c", SIGNALLED_EARLY], check=True, timeout=20)
