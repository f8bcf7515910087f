"""Targets that add clients as the loads need them, and limits that are not the storage's."""

from collections.abc import Iterable, Mapping

import pytest

from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Applied, NullProgress
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.sample import State
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.runner import run_sweep
from cephfit.targets.abilities import ReportsLimits, ScalesClients
from cephfit.targets.simulated import SimulatedTarget

LOADS = "  loads:\n    three: {clients: 3}\n    five: {clients: 5}\n"


class Growing(SimulatedTarget):
    """A simulated cloud that creates clients on demand, up to a quota."""

    def __init__(self, quota: int = 100) -> None:
        super().__init__()
        self.asked: list[tuple[str, int]] = []
        self._quota = quota

    def require_clients(
        self, configurations: Iterable[Configuration], *, n_clients: int, volume_nbytes: int
    ) -> None:
        if n_clients > self._quota:
            raise ClusterError(f"{n_clients} clients are needed, {self._quota} are available")

    def limits(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        return {"blob": ("volumes do 60 I/Os per second",)}

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        self.asked.append((configuration.name, n_clients))
        return super().apply(configuration, n_clients=n_clients, volume_nbytes=volume_nbytes, fill=fill)


def test_clients_are_created_when_a_load_needs_them_and_stay(small_text: str, store: Store) -> None:
    sweep = parse_sweep(small_text.replace("repeats: 2", "repeats: 1") + LOADS, file="small.yaml")
    target = Growing()
    assert isinstance(target, ScalesClients) and isinstance(target, ReportsLimits)
    run = run_sweep(sweep, target, store, NullProgress(), resume=None)
    samples = store.samples(run.run_id)
    assert {s.state for s in samples} == {State.OK}
    per_load = {load: {s.key.client for s in samples if s.key.load == load} for load in ("", "three", "five")}
    assert {load: len(clients) for load, clients in per_load.items()} == {"": 2, "three": 3, "five": 5}
    in_place: tuple[str, int] | None = None
    for asked in target.asked:
        again = in_place is not None and in_place[0] == asked[0]
        assert not again or asked[1] > in_place[1], "a configuration in place is applied again only to add clients"
        in_place = asked
    assert {n for _, n in target.asked} > {5}, "early small loads do not wait for the largest"


def test_too_many_clients_are_refused_before_the_first_is_created(small_text: str, store: Store) -> None:
    target = Growing(quota=4)
    with pytest.raises(ClusterError, match="5 clients are needed, 4 are available"):
        run_sweep(parse_sweep(small_text + LOADS, file="small.yaml"), target, store, NullProgress(), resume=None)
    assert target.asked == []


def test_limits_of_clients_are_kept_with_the_run(small_text: str, store: Store) -> None:
    run = run_sweep(parse_sweep(small_text, file="small.yaml"), Growing(), store, NullProgress(), resume=None)
    assert store.run(run.run_id).facts["limits"] == {"blob": ["volumes do 60 I/Os per second"]}
