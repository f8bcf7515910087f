"""The samples that a sweep is to give, and those that it gave."""

from collections import Counter
from collections.abc import Iterable

from cephfit.core.values.sample import Sample, State
from cephfit.sweep.sweep_plan import Sweep

Key = tuple[str, str, str, int]
"""Configuration, cell, client, round."""


def ok_keys(samples: Iterable[Sample]) -> Counter[Key]:
    """How often each was measured well."""
    keys = (s.key for s in samples if s.state is State.OK)
    return Counter((k.configuration, str(k.cell), k.client, k.repeat) for k in keys)


def whole_plan(sweep: Sweep) -> Counter[Key]:
    """Every sample of a sweep that leaves nothing out, once."""
    m = sweep.measurement
    return Counter(
        (c.name, str(cell), f"c{i}", r)
        for c in sweep.configurations
        for cell in m.cells
        for i in range(m.n_clients)
        for r in range(m.repeats)
    )
