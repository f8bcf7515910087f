"""The portraits of all disks of a trace, as far as memory lets them be kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cephfit.access import AccessBatch
from cephfit.cells import RANDOM_THRESHOLD_LBN
from cephfit.errors import InputError
from cephfit.traces.description.portrait import Portrait

MAX_DISKS = 32
"""A portrait takes up to 3 MiB. With more disks than this none is kept: which ones were would depend on the parts
in which the trace was read."""


def too_many_disks(disk: str) -> InputError:
    """The error for a full description of more disks; ``disk`` is one of them."""
    return InputError(
        f"the full description, and any random threshold but {RANDOM_THRESHOLD_LBN}, is kept for at most "
        f"{MAX_DISKS} disks; the trace has more",
        where="--describe full",
        remedy=f"take some of the disks: --disk {disk}, or leave the behaviour out: --describe fast without "
        "--threshold",
    )


@dataclass(frozen=True, slots=True)
class Portraits:
    """Portraits over a stretch of a trace, by disk name; joined like the partial profiles beside them.

    Attributes:
        disks: empty where there were too many.
        too_many: more than MAX_DISKS disks were seen.
    """

    disks: dict[str, Portrait] = field(default_factory=dict)
    too_many: bool = False

    @classmethod
    def of(
        cls,
        batch: AccessBatch,
        *,
        threshold: int = RANDOM_THRESHOLD_LBN,
        only: Sequence[str] = (),
        clock_ns: int = 1,
    ) -> "Portraits":
        """Describe one batch, of the disks ``only`` if any are named; ``clock_ns`` as of the trace's reader."""
        numbers = [int(d) for d in np.unique(batch.disk) if not only or batch.disks[d] in only]
        if len(numbers) > MAX_DISKS:
            return cls(too_many=True)
        alone = len(numbers) == 1 and bool((batch.disk == numbers[0]).all())
        disks = {}
        for number in numbers:
            rows = slice(None) if alone else np.flatnonzero(batch.disk == number)
            disks[batch.disks[number]] = Portrait.of(
                batch.time_ns[rows],
                batch.op[rows],
                batch.lbn[rows],
                batch.nbytes[rows],
                None if batch.latency_ns is None else batch.latency_ns[rows],
                None if batch.outstanding is None else batch.outstanding[rows],
                threshold=threshold,
                clock_ns=clock_ns,
            )
        return cls(disks)

    def followed_by(self, later: "Portraits") -> "Portraits":
        """This stretch and the one right after it."""
        disks = dict(self.disks)
        for name, portrait in later.disks.items():
            disks[name] = disks[name].followed_by(portrait) if name in disks else portrait
        if self.too_many or later.too_many or len(disks) > MAX_DISKS:
            return Portraits(too_many=True)
        return Portraits(disks)

    def renamed(self, *, prefix: str = "", only_disk: str | None = None) -> "Portraits":
        """The same with a prefix before the disks' names, or with its only disk called ``only_disk``."""
        names = {name: only_disk or f"{prefix}{name}" for name in self.disks}
        return Portraits({names[name]: p for name, p in self.disks.items()}, self.too_many)
