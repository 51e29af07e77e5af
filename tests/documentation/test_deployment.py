"""The manifests, the image's health check and Slurm's scripts fit what they start."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from jsonschema import Draft202012Validator

from sfapp.packets import read_windows
from tests.app.served import PROGRAM, served
from tests.commands import check_arguments

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "assets" / "kubernetes"
SLURM = ROOT / "assets" / "slurm"
HEALTH_CHECK = ROOT / "assets" / "container" / "healthcheck.py"
SCHEMAS = json.loads((Path(__file__).parent / "kubernetes-1.37.json").read_text())
TOKEN = "0123456789abcdef"

POD = "io.k8s.api.core.v1.PodTemplateSpec"
CHECKED: dict[str, Callable[[Any], list[tuple[str, Any]]]] = {
    "Deployment": lambda found: [("io.k8s.api.apps.v1.Deployment", found)],
    "Service": lambda found: [("io.k8s.api.core.v1.Service", found)],
    "PersistentVolumeClaim": lambda found: [("io.k8s.api.core.v1.PersistentVolumeClaim", found)],
    "JobSet": lambda found: [
        ("io.k8s.api.batch.v1.JobTemplateSpec", job["template"]) for job in found["spec"]["replicatedJobs"]
    ],
    "PyTorchJob": lambda found: [
        (POD, replica["template"]) for replica in found["spec"]["pytorchReplicaSpecs"].values()
    ],
}
"""What is checked of a resource, by kind: all of it, or the parts that are Kubernetes' own."""


def resources(name: str) -> list[Any]:
    return list(yaml.safe_load_all((MANIFESTS / name).read_text()))


def containers(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every container in a resource."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("containers", "initContainers"):
                yield from inner
            else:
                yield from containers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from containers(inner)


@pytest.mark.parametrize("name", sorted(path.name for path in MANIFESTS.iterdir()))
class TestManifests:
    def test_a_manifest_follows_the_schemas_of_kubernetes(self, name: str) -> None:
        for resource in resources(name):
            for kind, part in CHECKED[resource["kind"]](resource):
                validator = Draft202012Validator({"$ref": f"#/$defs/{kind}", **SCHEMAS})
                assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(part)] == []

    def test_a_container_s_command_line_is_one_of_sfapp(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "train.py").touch()
        monkeypatch.chdir(tmp_path)
        for resource in resources(name):
            for container in containers(resource):
                command = [*container.get("command", ["sfapp"]), *container["args"]]
                assert command.pop(0) == "sfapp"
                check_arguments([argument.replace("$(JOB_COMPLETION_INDEX)", "0") for argument in command])


def test_an_unknown_field_of_a_manifest_is_noticed() -> None:
    (deployment,) = (each for each in resources("sfapp.yaml") if each["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["argz"] = []
    schema = {"$ref": "#/$defs/io.k8s.api.apps.v1.Deployment", **SCHEMAS}
    assert not Draft202012Validator(schema).is_valid(deployment)


def dockerfile() -> dict[str, str]:
    """The last value of each instruction of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return dict(line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))


def test_the_image_s_commands_are_those_of_sfapp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    instructions = dockerfile()
    assert json.loads(instructions["ENTRYPOINT"]) == ["sfapp"]
    check_arguments(json.loads(instructions["CMD"]))
    assert instructions["USER"].split(":")[0] != "0"


class TestHealthCheck:
    @staticmethod
    def check(port: int, tmp_path: Path, **environment: str) -> int:
        """Run the health check, of this port instead of the image's."""
        script = tmp_path / "healthcheck.py"
        script.write_text(HEALTH_CHECK.read_text().replace(":8642/", f":{port}/"))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SFAPP_")}
        return subprocess.run(
            [sys.executable, str(script)], env={**kept, **environment}, capture_output=True, timeout=30
        ).returncode

    def test_it_follows_the_app_and_needs_its_token(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        packets = tmp_path / "packets"
        packets.mkdir()
        token = tmp_path / "token"
        token.write_text(f"{TOKEN}\n")
        monkeypatch.setenv("SFAPP_TOKEN", TOKEN)
        with served(packets, "--memory", "--host", "0.0.0.0", cwd=tmp_path) as server:
            assert self.check(server.port, tmp_path, SFAPP_TOKEN=TOKEN) == 0
            assert self.check(server.port, tmp_path, SFAPP_TOKEN_FILE=str(token)) == 0
            assert self.check(server.port, tmp_path) == 1
            # A proxy of the environment, which is for other machines, gets neither the request nor the token
            proxy = dict.fromkeys(("http_proxy", "HTTP_PROXY", "ALL_PROXY"), "http://127.0.0.1:1")
            proxy |= dict.fromkeys(("no_proxy", "NO_PROXY"), "")
            assert self.check(server.port, tmp_path, SFAPP_TOKEN=TOKEN, **proxy) == 0
            server.stop()
        assert self.check(server.port, tmp_path, SFAPP_TOKEN=TOKEN) == 1


STEPS = """
import sfapp
with sfapp.Recorder("packets", run_id="job", window_steps=5, timeout=30) as perf:
    for _ in range(5):
        with perf.step(), perf.stage("data.next_wait"):
            pass
assert perf.failures == (), perf.failures
"""


def until(condition: Callable[[], Any], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.torchrun
def test_slurm_s_scripts_stream_a_job_to_the_cluster_s_aggregator(tmp_path: Path) -> None:
    """The prolog starts a relay, the task's environment leads to it, and the epilog stops it."""
    bin_, keys, job = tmp_path / "bin", tmp_path / "stream.keys", tmp_path / "job"
    for folder in (bin_, job):
        folder.mkdir()
    (bin_ / "sfapp").write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
    (bin_ / "sfapp").chmod(0o755)
    address = f"ipc://{tmp_path}/aggregator"
    aggregator = subprocess.Popen(
        [*PROGRAM, "aggregate", "packets", "--listen", address, "--keys", keys, "--make-keys"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    environment = {
        **os.environ,
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "SLURM_JOB_ID": str(os.getpid()),
        "SFAPP_AGGREGATOR": address,
        "SFAPP_KEYS_FILE": str(keys),
        "SFAPP_CLIENT_KEYS_FILE": str(tmp_path / "client.keys"),
        "SFAPP_RELAYS": str(tmp_path / "relays"),
    }

    def run(script: str) -> str:
        return subprocess.run(
            [SLURM / script], env=environment, check=True, capture_output=True, text=True, timeout=30
        ).stdout

    try:
        until(keys.exists)
        from sfapp.stream import Keys

        (tmp_path / "client.keys").write_text(Keys.load(keys).for_clients().text())
        run("prolog.sh")
        relay = psutil.Process(int(next((tmp_path / "relays").glob("*.pid")).read_text()))
        exported = dict(
            line.removeprefix("export ").split("=", 1) for line in run("task-prolog.sh").splitlines()
        )
        subprocess.run(
            [sys.executable, "-c", STEPS], cwd=job, env={**os.environ, **exported}, check=True, timeout=60
        )
        run("epilog.sh")
        until(lambda: not relay.is_running() or relay.status() == psutil.STATUS_ZOMBIE)
        assert list((tmp_path / "relays").iterdir()) == []
    finally:
        aggregator.send_signal(signal.SIGINT)
        aggregator.communicate(timeout=30)
    assert [window.window.run_id for window in read_windows([tmp_path / "packets"]).windows] == ["job"]
    assert not list(job.glob("packets/**/*.parquet"))


@pytest.mark.parametrize("page", ["recorder.md", "guides/slurm.md"])
def test_no_launcher_searches_the_current_folder_for_modules_of_the_recorder(page: str) -> None:
    lines = (ROOT / "docs" / page).read_text().splitlines()
    commands = [line for line in lines if re.search(r"(python|torchrun) .*-m sfapp\.recorder\.auto", line)]
    assert commands
    assert all("python -P -m" in line or "PYTHONSAFEPATH=1 torchrun" in line for line in commands)
