"""``make fuzz``: read mutants of valid inputs with every parser, and run random histories.

Each parser runs in a process of its own, so that its memory is its own and a crash is a finding. A mutant
that raises a foreign exception, takes over five seconds of a core or ends the process is written to
``benchmarks/fuzz_corpus``; its files are read by ``tests/benchmarks/test_fuzz.py``.

    python -m benchmarks.fuzz --minutes 10
    python -m benchmarks.fuzz --histories 10000
    python -m benchmarks.fuzz --histories 500 --of stores
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from benchmarks.delivery_histories import DeliveryHistories, memory_folder
from benchmarks.fuzz_inputs import PARSERS
from benchmarks.incident_histories import IncidentHistories
from benchmarks.store_histories import StoreHistories

CORPUS = Path(__file__).parent / "fuzz_corpus"
LONGEST_SECONDS = 5.0
"""Processor time of one mutant: other programs of the machine may stop this one for longer."""

HISTORY_STEPS = 50

_TOKENS = [
    b"-1", b"0", b"1e999", b"NaN", b"null", b"true", b"[]", b"{}", b'""', b"9" * 40, b"\xff\xfe", b"\x00",
    b"\xed\xa0\x80", b"\\ud800", b"=1+1", b"../", b"\n", b"[" * 2_000, b"18446744073709551616",
    b"-9223372036854775809",
]  # fmt: skip


class ParserHang(Exception):
    """A mutant took longer than ``LONGEST_SECONDS``."""


def mutant(seeds: Sequence[bytes], randoms: random.Random) -> bytes:
    """Return a damaged copy of one of the seeds."""
    data = bytearray(randoms.choice(seeds))
    for _ in range(randoms.choice((1, 1, 2, 4, 16))):
        place = randoms.randrange(len(data) + 1)
        length = randoms.choice((1, 2, 4, 8, 40, 400))
        kind = randoms.randrange(8)
        if kind == 0 and data:
            data[place % len(data)] ^= 1 << randoms.randrange(8)
        elif kind == 1 and data:
            data[place % len(data)] = randoms.choice((0, 1, 0x7F, 0x80, 0xFF, randoms.randrange(256)))
        elif kind == 2:
            del data[place : place + length]
        elif kind == 3:
            data[place:place] = data[place : place + length]
        elif kind == 4:
            data[place : place + length] = bytes(length)
        elif kind == 5:
            data[place : place + randoms.choice((0, length))] = randoms.choice(_TOKENS)
        elif kind == 6:
            other = randoms.choice(seeds)
            begin = randoms.randrange(len(other) + 1)
            data[place : place + length] = other[begin : begin + length]
        elif randoms.random() < 0.2:
            del data[place:]
    return bytes(data)


def stop(signum: int, frame: FrameType | None) -> None:
    """End the mutant that is being read."""
    raise ParserHang(f"over {LONGEST_SECONDS:g} s")


def read_one(name: str, data: bytes, folder: Path) -> str:
    """Read one input; return what is wrong, or an empty text.

    Memory errors count too: a parser has to refuse what it cannot hold.
    """
    parser = PARSERS[name]
    signal.setitimer(signal.ITIMER_PROF, LONGEST_SECONDS)
    try:
        parser.read(data, folder)
    except parser.allowed:
        return ""
    except Exception as error:  # noqa: BLE001  # A foreign exception is what this looks for.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def keep(name: str, data: bytes) -> Path:
    """Add an input to the corpus."""
    path = CORPUS / name.replace(" ", "-") / hashlib.sha256(data).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def fuzz_parser(
    name: str, seconds: float, seed: int, last: Path | None = None, most: int | None = None
) -> dict[str, object]:
    """Read mutants for some seconds, or at most so many; return the counts."""
    signal.signal(signal.SIGPROF, stop)
    randoms, seeds = random.Random(f"{name} {seed}"), PARSERS[name].seeds()
    found: dict[str, str] = {}
    count, slowest = 0, 0.0
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        while time.monotonic() < end and count != most:
            data = mutant(seeds, randoms)
            if last is not None:
                last.write_bytes(data)
            started = time.process_time()
            wrong = read_one(name, data, Path(folder))
            slowest = max(slowest, time.process_time() - started)
            count += 1
            kind = wrong.partition(":")[0] + wrong.rpartition("(")[2]
            if wrong and kind not in found:
                found[kind] = f"{wrong} {keep(name, data).name}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "parser": name, "mutants": count, "foreign": list(found.values()),
        "slowest_ms": round(1000 * slowest), "begin_mb": begin // 1024, "peak_mb": peak // 1024,
    }  # fmt: skip


def fuzz_in_process(name: str, seconds: float, seed: int) -> dict[str, object]:
    """Fuzz a parser in a process of its own."""
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        last = Path(folder) / "last"
        command = [sys.executable, "-m", "benchmarks.fuzz", "--parser", name, "--last", str(last)]
        command += ["--minutes", str(seconds / 60), "--seed", str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=False)
        if done.returncode == 0:
            result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
            return result
        reason = f"ended with {done.returncode}: {done.stderr[-200:]}"
        return {"parser": name, "mutants": 0, "foreign": [f"{reason} {keep(name, last.read_bytes()).name}"]}


MACHINES: dict[str, type[RuleBasedStateMachine]] = {
    "incidents": IncidentHistories,
    "delivery": DeliveryHistories,
    "stores": StoreHistories,
}


def run_histories(count: int, names: Sequence[str]) -> None:
    """Run random histories; raise if an invariant does not hold."""
    for machine in (MACHINES[name] for name in names):
        begin = time.monotonic()
        chosen = settings(
            max_examples=count,
            stateful_step_count=HISTORY_STEPS,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(machine, settings=chosen)
        print(f"{machine.__name__}: {count:,} histories hold, {time.monotonic() - begin:.0f} s", flush=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parser", choices=PARSERS)
    parser.add_argument("--last", type=Path)
    parser.add_argument("--histories", type=int, default=0, help="random histories instead of mutants")
    parser.add_argument("--of", action="append", choices=MACHINES, help="of these only [default: all]")
    asked = parser.parse_args(arguments)
    if asked.histories:
        run_histories(asked.histories, asked.of or list(MACHINES))
        return 0
    if asked.parser is not None:
        print(json.dumps(fuzz_parser(asked.parser, 60 * asked.minutes, asked.seed, asked.last)))
        return 0
    print(
        "| parser | mutants | foreign exceptions | slowest | peak memory |\n| --- | --- | --- | --- | --- |"
    )
    bad = total = 0
    for name in PARSERS:
        result = fuzz_in_process(name, 60 * asked.minutes / len(PARSERS), asked.seed)
        foreign = result["foreign"]
        assert isinstance(foreign, list)
        bad += len(foreign)
        total += int(str(result["mutants"]))
        cells = [name, f"{result['mutants']:,}", len(foreign), f"{result.get('slowest_ms')} ms"]
        print("|", " | ".join(map(str, cells)), f"| {result.get('peak_mb')} MB |", flush=True)
        for line in foreign:
            print(f"  {name}: {line}", file=sys.stderr, flush=True)
    print(f"\n{total:,} mutants, {bad} kinds of foreign exceptions")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
