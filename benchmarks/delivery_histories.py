"""Random histories of a job's stream against a model of a few lines: a Hypothesis state machine.

Ranks train, windows go through send queues, links and the aggregator into packets and the store. At every
step processes may be killed and restarted, links lose, repeat and reorder frames, disks are full, and clocks
jump. The model knows which steps were recorded, and needs no more: nothing acknowledged is lost, nothing is
stored twice, and every loss is counted and named. ``tests/stream/test_delivery_histories.py`` runs some
histories, ``make fuzz`` many.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from benchmarks.simulated_stream import (
    RUN,
    SimulatedAggregator,
    SimulatedClock,
    SimulatedDisk,
    SimulatedLink,
    SimulatedRankProcess,
)
from sfapp.packets import Packet, find_packets, load_packet, packet_path, read_packet, read_windows
from sfapp.store import Store

WORLD = 2

ranks = st.integers(0, WORLD - 1)
counts = st.integers(1, 12)
jumps = st.sampled_from([0.1, 0.6, 1.1, 3.0, 31.0, 61.0, 4 * 3600.0])
free_bytes = st.sampled_from([None, None, None, 0, 30, 700, 4_000])
picks = st.integers(0, 1 << 16)

PROCESS_FAULTS = (
    "job restarts",
    "rank is killed",
    "rank ends",
    "rank ends at once",
    "aggregator is killed",
    "aggregator is killed and restarts",
    "aggregator stops",
    "aggregator stops and restarts",
)


def memory_folder() -> str | None:
    """Return a folder in memory, where files are flushed at once; None where there is none."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class DeliveryHistories(RuleBasedStateMachine):
    """A job of two ranks, its aggregator, and every step that was recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory(prefix="sfapp-delivery-", dir=memory_folder())
        self.folder = Path(self.temporary.name)
        self.root = self.folder / "packets"
        self.clock = SimulatedClock()
        self.disks = [SimulatedDisk() for _ in range(WORLD)]
        self.aggregator_disk = SimulatedDisk()
        self.aggregator: SimulatedAggregator | None = self.start_aggregator()
        self.alive: dict[int, SimulatedRankProcess] = {}
        self.ended: list[SimulatedRankProcess] = []
        self.killed: list[SimulatedRankProcess] = []
        self.attempts = self.step = self.walls = 0
        self.restart_job()

    # ---- the job --------------------------------------------------------------------------------

    def start_aggregator(self) -> SimulatedAggregator:
        return SimulatedAggregator(self.root, self.clock, self.aggregator_disk)

    def output(self, rank: int) -> Path:
        return self.folder / f"node-{rank}"

    def first_window(self) -> int:
        """The number from which a restarted job counts, as its ranks agree on it."""
        outputs = [self.output(rank) for rank in range(WORLD)]
        files = [path for output in outputs for path in output.rglob("*.parquet")]
        return max((int(path.name.partition(".")[0]) + 1 for path in files), default=0)

    def restart_job(self) -> None:
        """All processes of the job are killed, and it starts again from a checkpoint."""
        for rank in list(self.alive):
            self.kill_rank(rank)
        self.attempts += 1
        self.step = max(0, self.step - 2)
        first = self.first_window()
        for rank in range(WORLD):
            self.alive[rank] = SimulatedRankProcess(
                rank,
                WORLD,
                f"attempt-{self.attempts}",
                self.output(rank),
                self.clock,
                self.disks[rank],
                self.exchange,
                first,
            )

    @rule(steps=counts)
    def train(self, steps: int) -> None:
        for _ in range(steps):
            for process in self.alive.values():
                self.walls += 1
                process.train(self.step, 1_000_000 + self.walls)
            self.step += 1

    def kill_rank(self, rank: int) -> None:
        process = self.alive.pop(rank, None)
        if process is not None:
            self.killed.append(process)

    def end_rank(self, rank: int, seconds: float) -> None:
        process = self.alive.get(rank)
        if process is not None:
            process.close(seconds)
            self.ended.append(self.alive.pop(rank))

    # ---- the network ----------------------------------------------------------------------------

    def link(self, rank: int) -> SimulatedLink | None:
        process = self.alive.get(rank)
        return None if process is None else process.link

    @rule(rank=ranks)
    def turn(self, rank: int) -> None:
        if rank in self.alive:
            self.alive[rank].sender.turn()

    @rule(rank=ranks, frames=counts)
    def carry_up(self, rank: int, frames: int) -> None:
        link = self.link(rank)
        if link is not None and link.is_up and self.aggregator is not None:
            for frame in link.up[:frames]:
                self.aggregator.receive(link, frame)
            del link.up[:frames]

    @rule(rank=ranks, frames=counts)
    def carry_down(self, rank: int, frames: int) -> None:
        if rank in self.alive:
            link = self.alive[rank].link
            for frame in link.down[:frames]:
                self.alive[rank].sender.receive(frame)
            del link.down[:frames]

    @rule()
    def exchange(self) -> None:
        """Everything runs as it should for a moment."""
        for rank in self.alive:
            self.turn(rank)
            self.carry_up(rank, 100)
        if self.aggregator is not None:
            self.aggregator.turn(is_idle=True)
        for rank in self.alive:
            self.carry_down(rank, 100)

    @rule(rank=ranks)
    def exchange_with_one(self, rank: int) -> None:
        """One rank makes progress while the other one is slow."""
        self.clock.now += 1.1
        self.turn(rank)
        self.carry_up(rank, 100)
        self.aggregator_turn()
        self.carry_down(rank, 100)

    @rule(rank=ranks, place=picks, down=st.booleans(), how=st.sampled_from(["lose", "repeat", "reorder"]))
    def disturb(self, rank: int, place: int, down: bool, how: str) -> None:
        link = self.link(rank)
        frames = [] if link is None else link.down if down else link.up
        if not frames:
            return
        frame = frames.pop(place % len(frames))
        if how != "lose":
            frames.insert(0, frame)
        if how == "repeat":
            frames.append(frame)

    def reconnect(self, rank: int, is_up: bool) -> None:
        """A cable is pulled or plugged in, or a relay is killed and restarted."""
        link = self.link(rank)
        if link is not None:
            link.reset()
            link.is_up = is_up

    # ---- the aggregator, disks and clocks -------------------------------------------------------

    @rule()
    def aggregator_turn(self) -> None:
        if self.aggregator is not None:
            self.aggregator.turn(is_idle=False)

    def end_aggregator(self, gently: bool, restarted: bool) -> None:
        if self.aggregator is not None and gently:
            self.aggregator.stop()
        for process in self.alive.values():
            process.link.reset()
        self.aggregator = self.start_aggregator() if restarted else None

    @rule(what=st.sampled_from(PROCESS_FAULTS), rank=ranks)
    def end_a_process(self, what: str, rank: int) -> None:
        if what == "job restarts":
            self.restart_job()
        elif what == "rank is killed":
            self.kill_rank(rank)
        elif what == "rank ends":
            self.end_rank(rank, 10.0)
        elif what == "rank ends at once":
            self.end_rank(rank, 0.0)
        else:
            self.end_aggregator(gently="stops" in what, restarted="restarts" in what)

    @rule(what=st.sampled_from(["aggregator's disk", "disk", "cable"]), rank=ranks, room=free_bytes)
    def break_or_repair(self, what: str, rank: int, room: int | None) -> None:
        if what == "cable":
            self.reconnect(rank, is_up=room is None)
        else:
            (self.disks[rank] if what == "disk" else self.aggregator_disk).room = room

    @rule(seconds=jumps)
    def jump(self, seconds: float) -> None:
        self.clock.now += seconds

    # ---- the model ------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            self.heal()
            self.check()
        finally:
            self.temporary.cleanup()

    def heal(self) -> None:
        """All faults end, and the job finishes."""
        self.aggregator_disk.room = None
        self.aggregator = self.aggregator or self.start_aggregator()
        for rank in list(self.alive):
            self.disks[rank].room = None
            self.alive[rank].link.is_up = True
        for _ in range(8):
            self.exchange()
            self.jump(1.1)
        for rank in list(self.alive):
            self.end_rank(rank, 10.0)
        for _ in range(5):
            self.exchange()
            self.jump(61.0)
        self.aggregator.stop()

    def check(self) -> None:
        outputs = [self.output(rank) for rank in range(WORLD)]
        stored, left = windows_by_wall([self.root]), windows_by_wall(outputs)
        every = [*self.ended, *self.killed]
        recorded = {wall: process for process in every for wall in process.recorded}
        assert stored.keys() <= recorded.keys(), "a value was changed"
        assert all(len(windows) == 1 for windows in stored.values()), "stored twice"
        for process in every:
            lost_ack = process.acknowledged - stored.keys()
            assert not lost_ack, f"acknowledged and lost: {lost_ack}"
        for process in self.ended:
            lost = process.recorded.keys() - stored.keys() - left.keys()
            windows = {process.recorded[wall] for wall in lost}
            assert windows <= process.discarded, "a loss is not named"
            dropped = sum(process.recorded[wall] in process.local.dropped for wall in lost)
            assert len(lost) - dropped <= process.writer.lost_steps, "a loss is not counted"
        check_windows(self.root, stored)
        self.check_store(stored.keys())
        self.check_copied_parts({wall: process.attempt for wall, process in recorded.items()})

    def check_copied_parts(self, attempts: Mapping[int, str]) -> None:
        """Parts that were copied beside the packets replace none, and no window mixes attempts.

        Args:
            attempts: the attempt of each wall time.
        """
        folder = packet_path(self.root, RUN, 0).parent
        folder.mkdir(parents=True, exist_ok=True)
        for rank in range(WORLD):
            for path in self.output(rank).rglob("*.parquet"):
                assert not (folder / path.name).exists(), "a file was replaced"
                shutil.copy2(path, folder)
        walls: defaultdict[int, set[int]] = defaultdict(set)
        for path in folder.glob("*.parquet"):
            loaded = load_packet(path)
            assert isinstance(loaded, Packet)
            for wall in loaded.window.wall_NR.flatten():
                walls[int(wall)].add(loaded.window.number)
        check_windows(self.root, walls)
        for item in read_windows([self.root]).windows:
            assert len({attempts[int(wall)] for wall in item.window.wall_NR.flatten()}) == 1, (
                "attempts are mixed"
            )

    def check_store(self, stored: Collection[int]) -> None:
        """The store has every window of the packet directory once. Some histories check it: opening costs."""
        if len(stored) % 8 != 1:
            return
        with Store.open([self.root], db=self.folder / "store.duckdb") as store:
            store.ingest()
            store.ingest()
            numbers = store.window_numbers([RUN])[RUN]
        assert sorted(numbers) == [item.window.number for item in read_windows([self.root]).windows]


def windows_by_wall(folders: list[Path]) -> dict[int, set[int]]:
    """Return the numbers of the windows in whose files each wall time is."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    for path in find_packets([folder for folder in folders if folder.exists()]):
        window = read_packet(path).window
        for wall in window.wall_NR.flatten():
            found[int(wall)].add(window.number)
    return found


def check_windows(folder: Path, walls: Mapping[int, set[int]]) -> None:
    """Check that readers of a folder see every step, or say why not."""
    if not folder.exists():
        return
    loaded = read_windows([folder])
    assert not loaded.quarantined
    conflicting = {conflict.window for conflict in loaded.conflicts}
    seen: Counter[int] = Counter()
    for item in loaded.windows:
        window = item.window
        present, missing = set(window.ranks.rank), set(window.manifest.missing_ranks)
        assert present | missing == set(range(WORLD)), "an absent rank is not named"
        seen.update(int(wall) for wall in window.wall_NR.flatten())
        if "step_misaligned" in window.manifest.faults:
            conflicting.add(window.number)
    assert max(seen.values(), default=1) == 1, "seen twice"
    unseen = {number for wall in walls.keys() - seen.keys() for number in walls[wall]}
    assert unseen <= conflicting, "a step that is stored is not shown, and nothing says so"
