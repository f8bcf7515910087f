"""Where the clients of a shared volume access it, and which locks each access needs. Pure.

The volume has one common region, and one region for each client that no other client accesses; all have the same
size. A client accesses random blocks: with the probability ``shared_pct`` in the common region, otherwise in its
own. This is the sharing degree: the share of accesses to blocks that other clients use too.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.units import format_nbytes
from cephfit.core.values.cells import Op


class LockWay(StrEnum):
    """How the clients of one volume exclude each other."""

    NONE = "none"
    EXCLUSIVE = "exclusive-lock"
    RANGES = "ranges"


@dataclass(frozen=True, slots=True)
class SharedLoad:
    """What every client does to the volume.

    Attributes:
        way: how clients exclude each other.
        op: direction of all accesses.
        n_clients: that run together.
        shared_pct: per cent of the accesses that go to the common region.
        access_nbytes: size and alignment of an access.
        range_nbytes: bytes for which one lock is; 0 without range locks.
        volume_nbytes: size of the volume.
        unit_nbytes: size of which a region is a multiple, so that no lock range is in two regions.
    """

    way: LockWay
    op: Op
    n_clients: int
    shared_pct: float
    access_nbytes: int
    range_nbytes: int
    volume_nbytes: int
    unit_nbytes: int

    def __post_init__(self) -> None:
        if self.region_nbytes < max(self.access_nbytes, 1):
            regions = f"{self.n_clients + 1} regions of at least {format_nbytes(self.unit_nbytes)}"
            raise InputError(
                f"the volume has {format_nbytes(self.volume_nbytes)}, too little for {regions}",
                where="--volume-size",
                remedy="use a larger volume, fewer clients, or smaller lock ranges",
            )

    @property
    def region_nbytes(self) -> int:
        """Size of the common region, and of each client's own."""
        return self.volume_nbytes // (self.n_clients + 1) // self.unit_nbytes * self.unit_nbytes

    def offsets(self, client: int, seed: int) -> Iterator[int]:
        """Yield the offsets of a client's accesses, without end.

        Args:
            client: counts from 0.
            seed: the same seed gives the same offsets.
        """
        rng = random.Random(f"{seed} {client}")
        n_blocks = self.region_nbytes // self.access_nbytes
        own = (client + 1) * self.region_nbytes
        while True:
            start = 0 if rng.random() * 100 < self.shared_pct else own
            yield start + rng.randrange(n_blocks) * self.access_nbytes

    def locks(self, offset: int) -> tuple[int, ...]:
        """Return the numbers of the lock ranges that an access touches; empty without range locks.

        They are in rising order. All clients take locks in this order, so they cannot wait for each other in a
        circle.
        """
        if self.way is not LockWay.RANGES:
            return ()
        last = offset + self.access_nbytes - 1
        return tuple(range(offset // self.range_nbytes, last // self.range_nbytes + 1))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "SharedLoad":
        return cls(**{**document, "way": LockWay(document["way"]), "op": Op(document["op"])})
