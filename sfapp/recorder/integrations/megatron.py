"""For jobs instrumented with Megatron's ``stimer``: what it times, recorded by sfapp."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from sfapp.errors import RecorderError
from sfapp.model.stages import DATA, FORWARD
from sfapp.recorder.recorder import Recorder
from sfapp.recorder.side_channels.channels import RecordedChannel
from sfapp.recorder.timing.contexts import UncountedStage
from sfapp.recorder.timing.timers import Stage


class StragglerDetector:
    """Stands where ``megatron.core.utils.StragglerDetector`` stood: the same calls, no reports of its own.

    >>> stimer = sfapp.recorder.integrations.megatron.StragglerDetector(perf)
    >>> with stimer(bdata=True):
    ...     batch = get_batch(batches)
    >>> with stimer:
    ...     loss = model(batch)

    It does not say which micro-batch it times: their times add up. With more than one in a step declare that:
    ``Accumulation(factor=m, ordered=False)``.

    Args:
        perf: the recorder; the loop says ``with perf.step()``.
        batch: where ``bdata=True`` goes: a stage, or else a side channel of this name, in ms.
        work: where everything else goes.

    Raises:
        RecorderError: micro-steps are kept apart, which this cannot.
    """

    def __init__(self, perf: Recorder, batch: str = DATA, work: str = FORWARD) -> None:
        if perf.accumulation.factor > 1 and perf.accumulation.ordered:
            raise RecorderError("stimer does not say which micro-step it times: declare ordered=False")
        self._perf = perf
        self._batch = batch
        self._work = work
        self._open: Stage | RecordedChannel | UncountedStage | None = None
        self.bdata = False

    def configure(self, *args: Any, **options: Any) -> None:
        """Nothing to do: the recorder was made before."""

    def __call__(self, bdata: bool = False) -> StragglerDetector:
        """Say whether what is timed next fetches a batch."""
        self.bdata = bdata
        return self

    def start(self) -> None:
        """Begin to time. As there, not reentrant: what was timed before ends."""
        self.stop()
        name, self.bdata = (self._batch if self.bdata else self._work), False
        is_stage = name in self._perf.stages
        self._open = self._perf.stage(name) if is_stage else self._perf.side_channel(name)
        self._open.__enter__()

    def stop(self) -> None:
        """End what ``start`` began."""
        timed, self._open = self._open, None
        if timed is not None:
            timed.__exit__(None, None, None)

    def __enter__(self) -> StragglerDetector:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def enabled(self) -> bool:
        """True: recording is never off."""
        return True

    @property
    def configured(self) -> bool:
        """True."""
        return True

    def reset(self) -> None:
        """Nothing to do: windows end by themselves."""

    def report(self, total_flops: float = 0.0, log_interval: int = 0) -> bool:
        """False, nothing was reported: the packets hold what was measured."""
        return False
