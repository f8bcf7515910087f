"""The loads that samples were measured under: which there are, and what shape each has."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cephfit.cells import Cell
from cephfit.errors import InputError
from cephfit.sample import OWN_LOAD, Sample


@dataclass(frozen=True, slots=True)
class LoadShape:
    """What a load asks of the storage, as its samples say.

    Attributes:
        name: empty is the measurement's own.
        iodepth: I/Os that each client keeps in flight.
        n_clients: that ran together.
        rest: mix and rate in words, empty where there are none.
    """

    name: str
    iodepth: int
    n_clients: int
    rest: str


def by_place(samples: Iterable[Sample]) -> dict[tuple[str, Cell], list[Sample]]:
    """Samples by (configuration, cell), both in the order in which they come."""
    found: dict[tuple[str, Cell], list[Sample]] = {}
    for sample in samples:
        found.setdefault((sample.key.configuration, sample.key.cell), []).append(sample)
    return found


def of_load(samples: Iterable[Sample], load: str, *, where: str = "") -> list[Sample]:
    """The samples of one load.

    Raises:
        InputError: there is none of this name.
    """
    samples = list(samples)
    found = [sample for sample in samples if sample.key.load == load]
    if load and not found:
        others = [name for name in names_of(samples) if name]
        raise InputError(
            f"nothing was measured under a load called {load!r}",
            where=where,
            remedy=f"there are {', '.join(others)}, and the measurement's own without a name"
            if others
            else "the sweep has no loads but the measurement's own: leave --load out",
        )
    return found


def names_of(samples: Iterable[Sample]) -> tuple[str, ...]:
    """The loads there are samples of, the measurement's own first, then as they first appear."""
    names = dict.fromkeys(sample.key.load for sample in samples)
    return (*([OWN_LOAD] if OWN_LOAD in names else []), *(name for name in names if name != OWN_LOAD))


def shapes_of(samples: Iterable[Sample]) -> dict[str, LoadShape]:
    """The shape of each load; a load none of whose samples tells its shape is left out."""
    shapes: dict[str, LoadShape] = {}
    for sample in samples:
        said = sample.evidence.get("load")
        if sample.key.load not in shapes and isinstance(said, Mapping):
            shapes[sample.key.load] = LoadShape(
                sample.key.load, int(said["iodepth"]), int(said["clients"]), _rest(said)
            )
    return shapes


def title_of(load: str) -> str:
    """What people call a load."""
    return f"load {load}" if load else "the measurement's own load"


def _rest(said: Mapping[str, Any]) -> str:
    words = []
    if said.get("read_pct") is not None:
        words.append(f"{said['read_pct']} % reads mixed in")
    if said.get("rate_iops") is not None:
        words.append(f"at most {said['rate_iops']} IOPS per client")
    if said.get("rate_nbytes_per_s") is not None:
        words.append(f"at most {said['rate_nbytes_per_s']} bytes/s per client")
    return ", ".join(words)
