"""Data is made a few answers at a time: however much is requested at once, others are answered meanwhile."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from sfapp.app.in_turn import AT_ONCE
from sfapp.packets import packet_path, write_packet
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.app.data_client import client_of
from tests.app.served import served
from tests.builders import ddp_job, window_of


async def test_a_few_answers_are_made_at_once_and_all_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, present, most = threading.Lock(), 0, 0

    with Store.open([tmp_path], db=None) as store:
        workspace = Workspace(store, [tmp_path])
        runs = workspace.runs

        def slow_runs() -> object:
            nonlocal present, most
            with lock:
                present += 1
                most = max(most, present)
            time.sleep(0.02)
            with lock:
                present -= 1
            return runs()

        monkeypatch.setattr(workspace, "runs", slow_runs)
        async with client_of(workspace) as client:
            answers = await asyncio.gather(*(client.get("/windows.json") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert most == AT_ONCE


@pytest.mark.quiet
@pytest.mark.parametrize("stays", [True, False], ids=["they wait", "they leave"])
def test_the_state_is_answered_while_much_data_is_requested(tmp_path: Path, stays: bool) -> None:
    durations = ddp_job(ranks=2, steps=5, seed=0)
    for number in range(400):
        window = window_of(durations, run_id="run", window=number, world_size=2)
        write_packet(window, packet_path(tmp_path, "run", number))
    with served(tmp_path, cwd=tmp_path) as server:
        address = f"{server.url}windows.json"
        deadline = time.monotonic() + 60
        while httpx.get(address, timeout=60).json()["total"] < 400:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        clients = []
        for _ in range(300):
            clients.append(socket.create_connection(("127.0.0.1", server.port)))
            head = f"GET /windows.json?limit=1000 HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"
            clients[-1].sendall(head.encode())
            if not stays:
                clients[-1].close()
        began = time.monotonic()
        assert httpx.get(f"{server.url}healthz", timeout=60).status_code == 200
        assert time.monotonic() - began < 5.0
        for client in clients:
            client.close()
