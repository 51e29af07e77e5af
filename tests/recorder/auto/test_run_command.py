"""``sfapp run`` from a shell: real processes, real torchrun, scripts that know nothing of sfapp."""

from __future__ import annotations

import os
import py_compile
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import sfapp
from sfapp.cli.run import launch, newest
from sfapp.model import BETWEEN, Window
from sfapp.packets import read_windows
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER, OTHER

pytestmark = pytest.mark.torchrun

SCRIPTS = Path(__file__).parent / "scripts"
LOOPS = SCRIPTS / "loops.py"
MS = 1_000_000
COMMAND = [sys.executable, "-c", "from sfapp.cli import main; main()", "run"]


def run(
    folder: Path, *arguments: str | Path, expect: int = 0, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [*COMMAND, "--run-id", "run", "--window-steps", "5", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
    )
    assert result.returncode == expect, result.stderr[-3000:]
    return result


def windows(folder: Path) -> list[Window]:
    return [found.window for found in read_windows([folder / "packets"]).windows]


def test_a_delay_on_one_rank_is_named_at_the_end(tmp_path: Path) -> None:
    # Of 2 ranks and 5 steps, too little is known to name one in every window.
    slow = ("plain", "--steps", "80", "--slow-rank", "1")
    result = run(tmp_path, "--window-steps", "20", "--nproc-per-node", "2", LOOPS, *slow)
    *_, last = found = windows(tmp_path)
    assert [len(window.step_N) for window in found] == [20, 20, 20, 20]
    assert last.stages == (BETWEEN, CALLBACKS, DATA, FORWARD, BACKWARD, OPTIMIZER, OTHER)
    assert all(window.manifest.gather_ok and window.manifest.faults == () for window in found)
    assert last.manifest.wrapper == "ddp"
    assert last.ranks.rank == (0, 1)
    assert "sfapp: 4 windows in packets/run" in result.stderr
    assert re.search(r"  window \d: data on rank 1 \(\S+\), every step \(severity \d+ %\)", result.stderr)
    assert result.stderr.rstrip().endswith("sfapp serve packets")
    assert result.stdout == ""
    aim = sfapp.diagnose(last).aim
    assert aim is not None
    assert (aim.stage, aim.rank) == (DATA, 1)
    waited_R = np.median(last.waits[BACKWARD], axis=0) / MS
    assert waited_R[0] > waited_R[1] + 10


def test_of_very_many_packets_the_newest_are_looked_at(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number:08d}.parquet" for number in range(5)]
    for path in paths:
        path.write_bytes(b"x" * 100)
    assert newest(paths, most_bytes=250) == [paths[4], paths[3]]
    assert newest(paths, most_bytes=10) == [paths[4]]


def test_accumulation_is_learned_and_its_pattern_of_exchange_too(tmp_path: Path) -> None:
    run(tmp_path, "--nproc-per-node=2", LOOPS, "accumulated", "--steps=10")
    first, second = windows(tmp_path)
    assert first.stages[2:5] == (f"{DATA}[0]", f"{FORWARD}[0]", f"{BACKWARD}[0]")
    for window in (first, second):
        accumulation = window.manifest.accumulation
        assert (accumulation.factor, accumulation.ordered, accumulation.sync) == (4, True, "last")
        assert window.manifest.faults == ()
        assert int(window.duration_SNR[-1].sum()) < 0.05 * int(window.wall_NR.sum())


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Window]]:
    """Two windows by wrapper, of a script that trains one kind after the other; rank 1 waits for its data."""
    folder = tmp_path_factory.mktemp("sharded")
    run(folder, "--window-steps=12", "--nproc-per-node=2", LOOPS, "sharded", "--steps=24", "--slow-rank=1")
    by_wrapper: dict[str, list[Window]] = {}
    for window in windows(folder):
        by_wrapper.setdefault(window.manifest.wrapper, []).append(window)
    return by_wrapper


@pytest.fixture(scope="module")
def warm(sharded: dict[str, list[Window]]) -> dict[str, Window]:
    """The second windows: in the first step of a kind torch loads what it needs, longer than rank 1 waits."""
    return {wrapper: second for wrapper, (_, second) in sharded.items()}


@pytest.mark.parametrize("wrapper", ["fsdp2", "fsdp1", "zero1"])
def test_a_sharded_model_is_recorded_with_its_wrapper(warm: dict[str, Window], wrapper: str) -> None:
    window = warm[wrapper]
    assert window.manifest.faults == ()
    assert window.manifest.gather_ok
    assert window.ranks.rank == (0, 1)
    assert len(window.step_N) == 12
    assert window.stages[:2] == (BETWEEN, CALLBACKS)
    assert int(window.duration_SNR[-1].sum()) < 0.05 * int(window.wall_NR.sum())
    aim = sfapp.diagnose(window).aim
    assert aim is not None
    assert (aim.stage, aim.rank) == (DATA, 1)


@pytest.mark.parametrize(
    ("wrapper", "data", "sync_stage"),
    [("fsdp2", DATA, FORWARD), ("fsdp1", f"{DATA}[0]", f"{FORWARD}[0]"), ("zero1", DATA, BACKWARD)],
)
def test_ranks_wait_at_the_syncs_of_their_sharding(
    warm: dict[str, Window], wrapper: str, data: str, sync_stage: str
) -> None:
    """Parameters are gathered in forward, gradients averaged in backward."""
    window = warm[wrapper]
    median_SR = np.median(window.duration_SNR, axis=1) / MS
    assert median_SR[window.stages.index(data), 1] >= 40
    wait_R = median_SR[window.stages.index(sync_stage)]
    assert wait_R[0] > wait_R[1] + 20
    waited_R = np.median(window.waits[sync_stage], axis=0) / MS
    assert waited_R[0] > waited_R[1] + 20


def test_under_fsdp1_micro_steps_are_kept_apart_and_their_exchange_is_not_known(
    warm: dict[str, Window],
) -> None:
    window = warm["fsdp1"]
    accumulation = window.manifest.accumulation
    assert (accumulation.factor, accumulation.ordered, accumulation.sync) == (2, True, "unknown")
    assert window.stages[2:5] == (f"{DATA}[0]", f"{FORWARD}[0]", f"{BACKWARD}[0]")


def test_time_between_two_trainings_belongs_to_no_step(sharded: dict[str, list[Window]]) -> None:
    for window, _ in sharded.values():
        assert int(window.duration_SNR[:2, 0].max()) == 0  # what lies between them belongs to no step


def test_a_rank_that_never_takes_a_step_does_not_block_the_others(tmp_path: Path) -> None:
    begin = time.monotonic()
    result = run(tmp_path, "--nproc-per-node", "2", LOOPS, "one_rank_trains", "--steps", "5")
    assert "limited in 1 window: Ranks that should have reported are absent." in result.stderr
    (window,) = windows(tmp_path)
    assert window.ranks.rank == (0,)
    assert window.manifest.missing_ranks == (1,)
    assert time.monotonic() - begin < 60


def test_ranks_that_torchrun_starts_again_are_recorded_again(tmp_path: Path) -> None:
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    recorded = ["-m", "sfapp.recorder.auto", "--run-id", "run", "--window-steps", "5"]
    result = subprocess.run(
        [sys.executable, "-m", *torchrun, "--monitor-interval=0.1", *recorded, str(LOOPS), "restarted",
         "--steps=10"],
        capture_output=True, text=True, cwd=tmp_path, timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    whole, cut_short, *after = windows(tmp_path)
    assert [len(window.step_N) for window in (whole, cut_short)] == [5, 2]
    assert whole.manifest.gather_ok
    assert [window.number for window in after] == [2, 3]
    assert [window.step_N.tolist() for window in after] == [[*range(5)], [*range(5, 10)]]
    assert all(window.manifest.gather_ok and window.ranks.rank == (0, 1) for window in after)


def test_it_exits_as_the_script_does_and_keeps_the_packets(tmp_path: Path) -> None:
    result = run(tmp_path, "--nproc-per-node", "2", LOOPS, "failing", "--steps", "8", "--exit", expect=7)
    assert {step for window in windows(tmp_path) for step in window.step_N.tolist()} == set(range(7))
    assert "sfapp: 2 windows in packets/run" in result.stderr


def test_an_error_of_the_script_is_shown_as_ever(tmp_path: Path) -> None:
    result = run(tmp_path, "--no-between", LOOPS, "failing", "--steps", "8", expect=1)
    assert "RuntimeError: the loss is not finite" in result.stderr
    assert [window.stages[0] for window in windows(tmp_path)] == [CALLBACKS, CALLBACKS]


def test_a_script_runs_as_python_would_run_it(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "beside.py").write_text("NAME = 'beside'\n")
    (package / "train.py").write_text(
        "import importlib.util, os, sys, pickle\n"
        "os.environ['OMP_NUM_THREADS'] = '1'\n"
        "class Mine: pass\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:], 'torch' in sys.modules, __file__, __spec__ and __spec__.name)\n"
        "    print(type(pickle.loads(pickle.dumps(Mine()))) is Mine)\n"
        "    assert importlib.util.find_spec('torch').loader is not None\n"
        "    import torch\n"
        "    print(torch.get_num_threads(), torch.__spec__.loader.__class__.__name__)\n"
    )
    (package / "script.py").write_text("from beside import NAME\nprint(NAME)\n")
    many = {"OMP_NUM_THREADS": "2"}
    result = run(tmp_path, "-m", "package.train", "--out", "there", "-m", "x", environment=many)
    first, second, third = result.stdout.splitlines()
    assert first == f"['--out', 'there', '-m', 'x'] False {package / 'train.py'} package.train"
    assert second == "True"
    assert third == "1 SourceFileLoader"
    assert "sfapp: nothing was recorded" in result.stderr  # as PyTorch was there, and watched
    assert run(tmp_path, package / "script.py").stdout == "beside\n"


TRAINING = """
import os, torch

def train():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    "script",
    [
        f"import os\nos.chdir('elsewhere')\n{TRAINING}\ntrain()",
        f"{TRAINING}\ntrain()\nos.chdir('elsewhere')\ntrain()",
    ],
    ids=["before torch is imported", "while it is recorded"],
)
def test_packets_stay_where_they_were_asked_for_if_the_script_changes_folder(
    tmp_path: Path, script: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "train.py").write_text(script)
    assert "windows in packets/run" in run(tmp_path, tmp_path / "train.py").stderr
    assert sum(len(window.step_N) for window in windows(tmp_path)) == 12 * script.count("\ntrain()")
    assert not [*(tmp_path / "elsewhere").iterdir()]


INTERRUPTED = """
import copy, os, signal, torch

class Model(torch.nn.Linear):
    calls = 0

    def forward(self, batch):
        self.calls += 1
        if self.calls == 3:
            signal.raise_signal(signal.SIGINT)
        return super().forward(batch)

model = Model(2, 2)
try:
    while True:
        model(torch.ones(1, 2)).sum().backward()
except KeyboardInterrupt:
    torch.save(model, "model.pt")
    loaded = torch.load("model.pt", weights_only=False)
    for each in (copy.deepcopy(model), loaded, model, model):
        print(each(torch.ones(1, 2)).shape, len(model._forward_hooks))
"""


def test_an_interrupted_script_saves_its_whole_model(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(INTERRUPTED)
    result = run(tmp_path, tmp_path / "train.py")
    calls = [line.removeprefix("torch.Size([1, 2]) ") for line in result.stdout.splitlines()]
    assert calls[-2:] == ["0", "0"]
    assert len(calls) == 4
    assert b"sfapp" not in (tmp_path / "model.pt").read_bytes()


@pytest.mark.parametrize("kind", ["single", "distributed"])
def test_models_that_a_script_drops_are_not_kept(tmp_path: Path, kind: str) -> None:
    """Otherwise their memory on the device would be missing for the next one."""
    assert run(tmp_path, SCRIPTS / "dropped_models.py", kind).stdout == "[]\n"


SAVED_LATER = """
import atexit, pickle, sys, threading

class Settings: pass

def save(moment):
    assert type(pickle.loads(pickle.dumps(Settings()))) is Settings
    print(moment, __file__ == sys.modules["__main__"].__file__, sys.argv[1:], flush=True)

def save_in_background():
    threading.main_thread().join()
    save("thread")

threading.Thread(target=save_in_background).start()
atexit.register(save, "exit")
sys.exit(3)
"""


@pytest.mark.parametrize("form", ["train.py", "train.pyc", "folder", "module"])
def test_a_script_stays_the_main_module_until_its_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """A checkpoint may be saved in the background, or at exit, with objects of the script's own classes."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / ("__main__.py" if form == "folder" else "train.py")
    script.write_text(SAVED_LATER)
    py_compile.compile(str(script), str(tmp_path / "train.pyc"))
    asked = {"folder": [str(tmp_path)], "module": ["-m", "train"]}.get(form, [str(tmp_path / form)])
    result = subprocess.run([*COMMAND, *asked, "-m"], capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines() == ["thread True ['-m']", "exit True ['-m']"], result.stderr
    assert result.returncode == 3


def test_a_script_that_closes_all_files_trains_on(tmp_path: Path) -> None:
    """As one does that becomes a daemon: the numbers of the recorder's files may be those of others then."""
    others = "kept = [open(__file__) for _ in range(20)]"
    again = f"train()\nos.closerange(3, 256)\n{others}\ntrain()\nprint('trained')\n"
    (tmp_path / "train.py").write_text(TRAINING + again)
    result = run(tmp_path, tmp_path / "train.py")
    assert result.stdout == "trained\n"
    assert "Traceback" not in result.stderr
    assert sum(len(window.step_N) for window in windows(tmp_path)) == 24


def test_no_file_in_the_current_folder_takes_the_place_of_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current folder may be one that other users can write to, such as /tmp."""
    monkeypatch.chdir(tmp_path)
    for name in ("argparse", "runpy", "sfapp", "msgspec"):
        (tmp_path / f"{name}.py").write_text("import os\nos._exit(9)\n")
    package = tmp_path / "package"
    package.mkdir()
    own = "import os, sys\nsys.exit(7 if sys.path[0] == os.path.dirname(__file__) else 8)\n"
    (package / "script.py").write_text(own)
    (package / "train.py").write_text("import os, sys\nsys.exit(7 if sys.path[0] == os.getcwd() else 8)\n")
    assert launch([], [str(package / "script.py")]) == 7
    assert launch([], ["-m", "package.train"]) == 7


def test_a_signal_ends_the_script_and_leaves_nothing_running(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--nproc-per-node", "2", "--window-steps", "5", "--run-id", "run", str(LOOPS), "plain",
         "--steps", "100000"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("packets/run/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "in packets/run" in stderr
    last = windows(tmp_path)[-1]
    # Either it was cut short, or the signal came before the first step of another one had ended.
    assert last.manifest.closed_by == "shutdown" or len(last.step_N) == 5
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["python", "train.py"], "give the training script itself, not python"),
        (["torchrun", "train.py"], "give the training script itself, not torchrun"),
        (["train.py"], "no such script: train.py"),
        (["--event-fraction", "2", "train.py"], "2.0 is not in the range 0<=x<=1"),
        (
            ["--nproc-per-node", "many", LOOPS, "plain"],
            "torchrun rejects the options: Unsupported nproc_per_node value",
        ),
    ],
)
def test_a_mistaken_command_starts_nothing(tmp_path: Path, arguments: list[str | Path], message: str) -> None:
    assert message in run(tmp_path, *arguments, expect=2).stderr
    assert not list(tmp_path.iterdir())
