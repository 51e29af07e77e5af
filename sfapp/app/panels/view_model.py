"""The input of a panel, with a key for each part; a part is drawn again when its key changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from sfapp.accounting import Measures, nearest_changes
from sfapp.model import Diagnosis, Window
from sfapp.model.incidents import Note
from sfapp.model.view import ViewState
from sfapp.operators import Agreement, Findings
from sfapp.service.judging import JudgedWindow
from sfapp.views import text
from sfapp.views.figures import straggling_nodes
from sfapp.views.operator_findings import Examined

Key = tuple[Hashable, ...]

Found = TypeVar("Found")

LARGE = 1 << 20
"""Stage times of a window from which what is shown of it is computed on a thread: below, that takes less than
a frame, and waiting for a thread longer."""


class Computed:
    """Results of pure functions, one for each name: computed on a thread, then shown on the event loop.

    Two threads may compute the same result at once; either is kept.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[Key, Any]] = {}

    def get(self, name: str, key: Key, compute: Callable[[], Found]) -> Found:
        """Return what was computed under this name for this key, else compute it.

        Args:
            key: everything that the result depends on.
        """
        known = self._found.get(name)
        if known is not None and known[0] == key:
            result: Found = known[1]
            return result
        result = compute()
        self._found[name] = key, result
        return result


@dataclass(frozen=True, slots=True, eq=False)
class TabViewModel:
    """One judged window in one view and theme, with its notes.

    Attributes:
        examined: the findings in its operators; None until they are requested, because they take time.
        agreement: whether verdict and findings agree; None without findings.
        computed: shared by all models of one page.
    """

    judged: JudgedWindow
    view: ViewState
    dark: bool
    notes: tuple[Note, ...] = ()
    examined: Examined | None = None
    agreement: Agreement | None = None
    computed: Computed = field(default_factory=Computed)

    @property
    def is_large(self) -> bool:
        """Whether the window is so large that the event loop cannot compute what is shown of it."""
        window = self.measures.window
        return len(window.stages) * len(window.step_N) * len(window.ranks) >= LARGE

    @property
    def window(self) -> Window:
        """All ranks of the window, whatever the group."""
        return self.judged.window

    @property
    def measures(self) -> Measures:
        return self.judged.measures

    @property
    def diagnosis(self) -> Diagnosis:
        return self.judged.diagnosis

    @property
    def findings(self) -> Findings:
        """The findings in the window's operators.

        Raises:
            ValueError: the operators were not examined, or cannot be.
        """
        found = None if self.examined is None else self.examined.findings
        if found is None:
            raise ValueError("the operators of this window were not examined, or cannot be")
        return found

    @property
    def verdict(self) -> text.VerdictText:
        """The verdict in words."""
        key = self.judged.source, self.diagnosis
        return self.computed.get("verdict", key, lambda: text.verdict(self.diagnosis, self.window.ranks))

    @property
    def straggling_nodes(self) -> Set[int]:
        """Nodes with a rank that delays others."""
        key = self.judged.source, self.diagnosis
        compute = partial(straggling_nodes, self.measures, self.diagnosis)
        return self.computed.get("straggling nodes", key, compute)

    def changes(self, gates: tuple[str, ...]) -> Mapping[str, str]:
        """Return the nearest change of verdict of each of these gates, in words: many judgements."""

        def compute() -> Mapping[str, str]:
            nearest = nearest_changes(self.measures, self.diagnosis, gates)
            return text.changes(nearest, self.diagnosis)

        return self.computed.get("changes", (self.judged.source, self.diagnosis, gates), compute)

    def part(self, name: str) -> Key:
        """Return one part that a plot declares to read.

        Args:
            name: one of ``plot_registry.VERDICT_PARTS`` or ``VIEW_FIELDS``.
        """
        keys: dict[str, Key] = {
            "frontier": self.frontier_key,
            "aim": self.aim_key,
            "leaders": (self.diagnosis.gates.eta_q, self.diagnosis.gates.gamma_elig),
            "verdict": self.verdict_key,
            "findings": self.examined_key,
        }
        return keys[name] if name in keys else (getattr(self.view, name),)

    @property
    def examined_key(self) -> Key:
        """Identifies the examined operators."""
        return () if self.examined is None else (self.examined.key,)

    @property
    def matrix_key(self) -> Key:
        """Identifies the window's durations, the group of ranks and the theme, on which every plot depends.

        The baseline is part of the verdict instead, because only gains depend on it.
        """
        return self.judged.source, self.diagnosis.group, self.dark

    @property
    def frontier_key(self) -> Key:
        """The frontier in use, and its sync boundary."""
        return self.diagnosis.frontier, self.diagnosis.sync_boundary

    @property
    def aim_key(self) -> Key:
        """The suspect stage and rank."""
        aim = self.diagnosis.aim
        place = (None, None) if aim is None else (aim.stage, aim.rank)
        return *place, self.diagnosis.top_stage, self.diagnosis.is_healthy

    @property
    def verdict_key(self) -> Key:
        """Everything that a verdict depends on besides the durations."""
        diagnosis = self.diagnosis
        return diagnosis.gates, diagnosis.frontier, diagnosis.baseline, self.reference_key

    @property
    def reference_key(self) -> Key:
        """The window that serves as the reference."""
        reference = self.judged.reference
        return () if reference is None else (reference.run_id, reference.window, reference.group)


Follow = Callable[[TabViewModel], None]
"""Function that updates a built part in place."""
