"""A server that receives a stop signal while it computes."""

from __future__ import annotations

import signal
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
