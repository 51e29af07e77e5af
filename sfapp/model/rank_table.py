"""Who the ranks of a window are: their places, hosts, roles and attributes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from sfapp.model.host_evidence import MAX_ATTRIBUTES, Attributes
from sfapp.model.manifest import DIMENSIONS


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """Identity of one rank.

    Attributes:
        role: None if it was not declared.
        coordinates: its place in the parallel layout, by dimension (``DIMENSIONS``); empty if not known.
        attributes: attributes of its machine and job by name, such as ``kernel``; empty if not known.
    """

    rank: int
    local_rank: int
    node_rank: int
    hostname: str
    role: str | None = None
    coordinates: Mapping[str, int] = field(default_factory=dict, hash=False)
    attributes: Attributes = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, eq=False)
class AttributeValues:
    """The values of one attribute, as text.

    Attributes:
        values: the distinct values.
        code_R: the position in ``values`` of each rank's value.
        counts: the number of ranks that have each value.
    """

    values: tuple[str, ...]
    code_R: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, column: Sequence[object]) -> AttributeValues:
        """Return the values of a column with one for each rank."""
        counts = Counter(column)
        codes = {value: code for code, value in enumerate(counts)}
        return cls(tuple(map(str, counts)), tuple([codes[value] for value in column]), tuple(counts.values()))

    def __getitem__(self, place: int) -> str:
        return self.values[self.code_R[place]]


@dataclass(frozen=True)
class RankTable:
    """The identities of a window's R ranks, column by column, ascending by global rank.

    Properties that need a pass over all ranks are computed once: there may be 100,000 ranks.

    Attributes:
        layout: the ranks' coordinates in the parallel layout, by dimension in the order of ``DIMENSIONS``.
        attributes: the ranks' attributes by name; empty text for a rank that lacks one.
    """

    rank: tuple[int, ...]
    local_rank: tuple[int, ...]
    node_rank: tuple[int, ...]
    hostname: tuple[str, ...]
    role: tuple[str | None, ...]
    layout: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def __len__(self) -> int:
        return len(self.rank)

    @classmethod
    def of(cls, identities: Sequence[RankIdentity]) -> RankTable:
        """Return a table of these identities, sorted by global rank. A dimension of the layout that a rank
        lacks is left out, since the ranks could not be placed along it."""
        rows = sorted(identities, key=lambda identity: identity.rank)
        names = dict.fromkeys(name for row in rows if row.attributes for name in row.attributes)
        return cls(
            rank=tuple(row.rank for row in rows),
            local_rank=tuple(row.local_rank for row in rows),
            node_rank=tuple(row.node_rank for row in rows),
            hostname=tuple(row.hostname for row in rows),
            role=tuple(row.role for row in rows),
            layout={
                name: tuple(row.coordinates[name] for row in rows)
                for name in DIMENSIONS
                if rows and all(name in row.coordinates for row in rows)
            },
            attributes={
                name: tuple(row.attributes.get(name, "") for row in rows)
                for name in islice(names, MAX_ATTRIBUTES)
            },
        )

    def identity(self, index: int) -> RankIdentity:
        """Return the identity at a position (not a global rank) of this table."""
        return RankIdentity(
            self.rank[index],
            self.local_rank[index],
            self.node_rank[index],
            self.hostname[index],
            self.role[index],
            {name: column[index] for name, column in self.layout.items()},
            {name: column[index] for name, column in self.attributes.items() if column[index]},
        )

    def place(self, rank: int) -> int | None:
        """Return the position of a global rank; None if it is not in the table."""
        place = bisect_left(self.rank, rank)
        return place if place < len(self.rank) and self.rank[place] == rank else None

    def select(self, indices: Sequence[int]) -> RankTable:
        """Return the rows at these positions."""
        return RankTable.of([self.identity(index) for index in indices])

    @cached_property
    def node_hosts(self) -> Mapping[int, str]:
        """The host of each node rank present, ascending."""
        hosts = dict(zip(self.node_rank, self.hostname, strict=True))
        return {node: hosts[node] for node in sorted(hosts)}

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """The node ranks present, ascending."""
        return tuple(self.node_hosts)

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """The declared roles present, sorted; undeclared ranks do not count."""
        return tuple(sorted({role for role in self.role if role is not None}))

    @cached_property
    def distinct_roles(self) -> frozenset[str | None]:
        """The roles present, with None if some ranks have none declared."""
        return frozenset(self.role)

    @cached_property
    def known_attributes(self) -> Mapping[str, AttributeValues]:
        """Every known attribute: host, node, role, local rank, coordinates, and what the packet has."""
        columns: dict[str, Sequence[object]] = {
            "host": self.hostname,
            "node": self.node_rank,
            "role": [role or "" for role in self.role],
            "local_rank": self.local_rank,
            **self.layout,
        }
        columns |= {name: values for name, values in self.attributes.items() if name not in columns}
        return {name: AttributeValues.of(column) for name, column in columns.items()}
